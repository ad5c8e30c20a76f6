#include "terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "checkpoint/base/error_codes.h"
#include "core/printable.h"
#include "platform/terminal.h"

namespace nvfp4::cli {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

bool is_terminal(std::FILE* stream) {
  return platform::is_terminal(stream) && environment("TERM") != "dumb";
}

int columns(std::FILE* stream) {
  const int found = platform::columns(stream);
  return found == 0 ? 80 : std::max(found, 20);
}

bool utf8() {
  if (platform::terminal_is_utf8()) return true;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos;
  }
  return false;
}

void print(std::string_view text) {
  errno = 0;
  const bool ok =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!ok && errno != EPIPE)
    throw IoError(fmt::format("cannot write to standard output: {}", std::strerror(errno)),
                  error_code(std::error_code(errno, std::generic_category())));
}

void say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

Style::Style(std::FILE* stream) : on_(is_terminal(stream) && environment("NO_COLOR").empty()) {}

std::string Style::wrap(std::string_view code, std::string_view text) const {
  return on_ && !text.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

std::string clean(std::string_view text) { return printable(text, text.size()); }

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
    } else if (!continues(text[i])) {
      ++width;
    }
  }
  return width;
}

std::string shorten(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  const std::string dots = utf8() ? "…" : "..";
  if (width <= display_width(dots)) return std::string(width, '.');
  const std::size_t keep = width - display_width(dots), head = keep / 3;
  // The end of a name is more informative than its start.
  std::size_t from = text.size(), to = 0;
  for (std::size_t n = 0; n < keep - head; ++n) do
      --from;
    while (continues(text[from]));
  for (std::size_t n = 0; n < head; ++n) do
      ++to;
    while (continues(text[to]));
  return fmt::format("{}{}{}", text.substr(0, to), dots, text.substr(from));
}

std::vector<std::string> wrap_words(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const std::size_t used = display_width(lines.back());
    if (used != 0 && used + 1 + display_width(word) > width) lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

std::string arrow() { return utf8() ? "→" : "->"; }

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> widths(alignment_.size());
  for (const auto& row : rows_)
    for (std::size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], display_width(row[c]));
  return widths;
}

std::size_t Table::width_before_last() const {
  const std::vector<std::size_t> all = widths();
  std::size_t width = indent_;
  for (std::size_t c = 0; c + 1 < all.size(); ++c) width += all[c] + 2;
  return width;
}

std::string Table::text() const {
  const std::vector<std::size_t> width = widths();
  std::string out;
  for (const auto& row : rows_) {
    std::string line(indent_, ' ');
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(width[c] - display_width(row[c]), ' ');
      if (c > 0) line += "  ";
      line += alignment_[c] == 'r' ? padding + row[c] : row[c] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

}  // namespace nvfp4::cli
