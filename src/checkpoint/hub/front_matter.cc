#include "checkpoint/hub/front_matter.h"

#include <algorithm>

#include "checkpoint/io/yaml.h"
#include "nvfp4/error.h"

namespace nvfp4::checkpoint {
namespace {

/// Limits: bytes of the front matter, bytes of a word, words of a list. The results in cards of
/// embedding models take a megabyte.
constexpr std::size_t kBytes = 4 << 20, kWord = 200, kWords = 200;

/// Removes the next line from the text. Returns it without the spaces at its end.
std::string_view next_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '\t'))
    line.remove_suffix(1);
  return line;
}

/// Returns the text between the two lines "---", or "" if they are missing.
std::string_view block(std::string_view card) {
  if (next_line(card) != "---") return {};
  const std::string_view start = card;
  while (!card.empty()) {
    const std::size_t before = start.size() - card.size();
    if (next_line(card) == "---") return start.substr(0, before);
  }
  return {};
}

bool is_word(const YamlNode& node) {
  return node.kind == YamlNode::Kind::scalar && !node.has_tag && !node.has_anchor &&
         !node.text.empty() && node.text.size() <= kWord &&
         std::ranges::all_of(node.text,
                             [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; });
}

}  // namespace

std::map<std::string, std::vector<std::string>> front_matter(std::string_view card) try {
  const YamlNode top = parse_yaml(block(card), "the front matter", kBytes);
  std::map<std::string, std::vector<std::string>> members;
  for (std::size_t i = 0; i < top.keys.size(); ++i) {
    const YamlNode& value = top.items[i];
    std::vector<std::string> words;
    if (is_word(value)) words.push_back(value.text);
    if (value.kind == YamlNode::Kind::sequence && value.items.size() <= kWords &&
        std::ranges::all_of(value.items, is_word))
      for (const YamlNode& item : value.items) words.push_back(item.text);
    if (!words.empty()) members[top.keys[i].text] = std::move(words);
  }
  return members;
} catch (const FormatError&) {
  return {};
}

}  // namespace nvfp4::checkpoint
