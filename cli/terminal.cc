#include "terminal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <span>

#include "checkpoint/base/error_codes.h"
#include "core/printable.h"
#include "platform/terminal.h"

namespace nvfp4::cli {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

/// Reports whether a character takes two columns, by the East Asian Width of Unicode: W and F.
bool is_wide(char32_t code) {
  constexpr std::pair<char32_t, char32_t> kWide[] = {
      {0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xA960, 0xA97F},
      {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
      {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF},
      {0x20000, 0x3FFFD},
  };
  return std::ranges::any_of(
      kWide, [&](const auto& range) { return code >= range.first && code <= range.second; });
}

/// The first character of a text, or an escape code.
struct Piece {
  std::size_t bytes, columns;
};
Piece first_piece(std::string_view text) {
  if (text[0] == '\x1b') return {std::min(text.find('m'), text.size() - 1) + 1, 0};
  const Character character = first_character(text);
  return {std::max<std::size_t>(1, character.bytes), is_wide(character.code) ? 2u : 1u};
}

}  // namespace

bool is_terminal(std::FILE* stream) {
  return platform::is_terminal(stream) && environment("TERM") != "dumb";
}

namespace {

/// Returns COLUMNS, or the width of a terminal, or 0.
int known_columns(std::FILE* stream) {
  const std::string_view given = environment("COLUMNS");
  int found = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), found);
  const bool is_number = error == std::errc() && end == given.data() + given.size() && found > 0;
  if (!is_number) found = platform::columns(stream);
  return found == 0 ? 0 : std::max(found, 20);
}

}  // namespace

int columns(std::FILE* stream) {
  const int found = known_columns(stream);
  return found == 0 ? 80 : found;
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
  for (std::size_t at = 0; at < text.size();) {
    const Piece piece = first_piece(text.substr(at));
    width += piece.columns;
    at += piece.bytes;
  }
  return width;
}

std::string shorten(std::string_view text, std::size_t width) {
  const std::size_t all = display_width(text);
  if (all <= width) return std::string(text);
  const std::string dots = utf8() ? "…" : "..";
  if (width <= display_width(dots)) return std::string(width, '.');
  // The end of a name is more informative than its start.
  const std::size_t keep = width - display_width(dots), head = keep / 3;
  std::size_t to = 0, from = 0;
  for (std::size_t used = 0; all - used > keep - head;) {
    if (used <= head) to = from;
    const Piece piece = first_piece(text.substr(from));
    used += piece.columns;
    from += piece.bytes;
  }
  return fmt::format("{}{}{}", text.substr(0, to), dots, text.substr(from));
}

std::vector<std::string> wrap_words(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    std::size_t end = text.find(' ');
    if (const std::size_t quote = text[0] == '\'' ? text.find('\'', 1) : text.npos;
        quote != text.npos)
      end = text.find(' ', quote);
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const std::size_t used = display_width(lines.back());
    if (used != 0 && used + 1 + display_width(word) > width) lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

std::string wrapped(std::FILE* stream, std::string_view text) {
  const auto width = static_cast<std::size_t>(known_columns(stream));
  if (width == 0) return std::string(text);
  std::string out;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size());
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    line.remove_prefix(indent);
    const std::string next = '\n' + std::string(indent, ' ');
    out += next.substr(1);
    out +=
        fmt::format("{}", fmt::join(wrap_words(line, width - std::min(indent, width / 2)), next));
    if (!text.empty()) out += '\n';
    text.remove_prefix(std::min<std::size_t>(1, text.size()));
  }
  return out;
}

std::string arrow() { return utf8() ? "→" : "->"; }

namespace {

/// Returns a cell that is shortened to the width, unless it has escape codes.
std::string fitted(const std::string& cell, std::size_t width) {
  return cell.find('\x1b') == std::string::npos ? shorten(cell, width) : cell;
}

}  // namespace

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> widths(alignment_.size());
  for (const Row& row : rows_)
    for (std::size_t c = 0; c < row.cells.size(); ++c)
      widths[c] = std::max(widths[c], display_width(row.cells[c]));
  return widths;
}

std::size_t Table::width_before_last() const {
  const std::vector<std::size_t> all = widths();
  std::size_t width = indent_;
  for (std::size_t c = 0; c + 1 < all.size(); ++c) width += all[c] + 2;
  return width;
}

std::string Table::text(std::size_t limit) const {
  constexpr std::size_t kLeastName = 20, kLeastText = 12;
  const std::size_t before = width_before_last(), width = before + widths().back();
  if (width <= limit) return lines(width);
  const std::size_t rest = width - widths().front();
  if (alignment_.front() == 's' && rest + kLeastName <= limit) {
    Table table = *this;
    for (Row& row : table.rows_) row.cells[0] = fitted(row.cells[0], limit - rest);
    return table.lines(limit);
  }
  const bool wraps = alignment_.back() == 'l' && before + kLeastText <= limit;
  return wraps ? lines(limit - before) : list(limit);
}

/// Returns one line for each row, and more if the last cell is wider than `last_width`.
std::string Table::lines(std::size_t last_width) const {
  const std::vector<std::size_t> width = widths();
  std::string out;
  for (const Row& row : rows_) {
    std::string line(indent_, ' ');
    for (std::size_t c = 0; c < row.cells.size(); ++c) {
      const std::string& cell = row.cells[c];
      if (c > 0) line += "  ";
      const std::string padding(width[c] - display_width(cell), ' ');
      const bool wraps = c + 1 == alignment_.size() && display_width(cell) > last_width;
      if (wraps && !row.one_line) {
        const std::string next = '\n' + std::string(width_before_last(), ' ');
        line += fmt::format("{}", fmt::join(wrap_words(cell, last_width), next));
      } else {
        line += alignment_[c] == 'r' ? padding + cell : cell + padding;
      }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

/// Returns the first cell of each row on a line, and below it the others with their titles.
std::string Table::list(std::size_t limit) const {
  const std::size_t inner = indent_ + 2;
  std::string out;
  for (const Row& row : std::span(rows_).subspan(titled_)) {
    std::string text;
    for (std::size_t c = 1; c < row.cells.size(); ++c) {
      if (row.cells[c].empty()) continue;
      const std::string title = titled_ == 0 ? "" : rows_[titled_ - 1].cells[c];
      text += fmt::format("{}{}{}{}", text.empty() ? "" : ", ", title, title.empty() ? "" : " ",
                          row.cells[c]);
    }
    if (!row.cells[0].empty())
      out += std::string(indent_, ' ') + fitted(row.cells[0], limit - indent_) + '\n';
    if (text.empty()) continue;
    for (const std::string& line :
         row.one_line ? std::vector{text} : wrap_words(text, limit - inner))
      out += std::string(inner, ' ') + line + '\n';
  }
  return out;
}

}  // namespace nvfp4::cli
