#include "checkpoint/source/front_matter.h"

#include <algorithm>
#include <cctype>
#include <optional>

namespace nvfp4::checkpoint {
namespace {

constexpr std::size_t kLines = 1000, kWord = 200, kWords = 200;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0)
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.remove_suffix(1);
  return text;
}

/// The next line, which is taken from the text; none at its end.
std::optional<std::string_view> next_line(std::string_view& text) {
  if (text.empty()) return {};
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// A word without its quotes; none if it is anything but a plain one.
std::optional<std::string> word(std::string_view text) {
  text = trimmed(text);
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
                      text.back() == text.front();
  if (quoted)
    text = text.substr(1, text.size() - 2);
  else
    text = trimmed(text.substr(0, text.find(" #")));
  if (text.empty() || text.size() > kWord) return {};
  constexpr std::string_view kStarts = "&*!|>{[%@`#\"'";  // YAML's own, or half of a quoted text
  if (!quoted && (kStarts.find(text.front()) != kStarts.npos || text.find(": ") != text.npos))
    return {};
  const bool plain = std::ranges::all_of(
      text, [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; });
  if (!plain) return {};
  return std::string(text);
}

bool add(std::vector<std::string>& words, std::string_view text) {
  auto one = word(text);
  if (!one || words.size() >= kWords) return false;
  words.push_back(std::move(*one));
  return true;
}

/// "[en, de]"
bool add_list(std::vector<std::string>& words, std::string_view text) {
  text = text.substr(1, text.size() - 2);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (!add(words, text.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

std::map<std::string, std::vector<std::string>> front_matter(std::string_view card) {
  std::map<std::string, std::vector<std::string>> members;
  if (const auto first = next_line(card); !first || trimmed(*first) != "---") return {};
  std::string key;  // of the list whose lines follow; "" if there is none
  for (std::size_t n = 0; n < kLines; ++n) {
    const auto line = next_line(card);
    if (!line) return {};  // it has no end: the text is no front matter
    const std::string_view text = trimmed(*line);
    if (text == "---") return members;
    if (text.empty() || text.starts_with('#')) continue;
    if (text.starts_with("- ")) {
      if (!key.empty() && !add(members[key], text.substr(2))) {
        members.erase(key);
        key.clear();
      }
      continue;
    }
    const std::size_t colon = line->find(':');
    if (line->front() == ' ' || line->front() == '\t' || colon == line->npos) {  // of an object
      members.erase(key);
      key.clear();
      continue;
    }
    key = trimmed(line->substr(0, colon));
    members.erase(key);
    const std::string_view value = trimmed(line->substr(colon + 1));
    if (value.empty()) continue;
    const bool list = value.size() >= 2 && value.starts_with('[') && value.ends_with(']');
    std::vector<std::string> words;
    if (list ? add_list(words, value) : add(words, value)) members[key] = std::move(words);
    key.clear();
  }
  return {};
}

}  // namespace nvfp4::checkpoint
