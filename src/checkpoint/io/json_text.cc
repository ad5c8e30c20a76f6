#include "checkpoint/io/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace nvfp4::checkpoint {
namespace {

/// Returns the text with null for Python's NaN and Infinity outside of strings. JSON has no such
/// numbers.
std::string without_python_numbers(const std::string& text) {
  if (text.find("NaN") == text.npos && text.find("Infinity") == text.npos) return text;
  std::string out;
  std::size_t copied = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
    } else if (c == '-' || c == 'I' || c == 'N') {
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
        if (!std::string_view(text).substr(i).starts_with(word)) continue;
        out.append(text, copied, i - copied).append("null");
        copied = i + word.size();
        i = copied - 1;
        break;
      }
    }
  }
  return out.append(text, copied);
}

constexpr std::string_view kSpace = " \t\r\n";

/// Returns the end of the string whose opening quote is at `i`.
std::size_t end_of_string(std::string_view text, std::size_t i) {
  for (++i; i < text.size() && text[i] != '"'; ++i)
    if (text[i] == '\\') ++i;
  return std::min(i + 1, text.size());
}

/// Returns the end of the value that starts at `i`.
std::size_t end_of_value(std::string_view text, std::size_t i) {
  int depth = 0;
  while (i < text.size()) {
    const char c = text[i];
    if (c == '"') {
      i = end_of_string(text, i);
      if (depth == 0) return i;
      continue;
    }
    const bool closes = c == '}' || c == ']';
    if (depth == 0 && (closes || c == ',' || kSpace.find(c) != kSpace.npos)) return i;
    if (c == '{' || c == '[') ++depth;
    ++i;
    if (closes && --depth == 0) return i;
  }
  return i;
}

std::string unescaped(std::string_view quoted) {
  return nlohmann::json::parse(quoted).get<std::string>();
}

}  // namespace

bool is_shallow_json(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"')
      in_string = !in_string;
    else if (in_string)
      i += c == '\\' ? 1 : 0;
    else if ((c == '{' || c == '[') && ++depth > kMaxJsonDepth)
      return false;
    else if (c == '}' || c == ']')
      --depth;
  }
  return true;
}

Json parse_config_json(const std::string& text, const std::string& file) {
  Json json = parse_json(without_python_numbers(text), file);
  require<FormatError>(json.is_object(), "{}: must be a JSON object", file);
  return json;
}

std::vector<JsonMember> json_members(std::string_view text, std::size_t brace) {
  std::vector<JsonMember> members;
  std::size_t i = brace;
  while (i < text.size()) {  // `i` is at the brace, or at a comma.
    JsonMember member;
    member.before = i;
    const std::size_t key = text.find_first_not_of(kSpace, i + 1);
    if (key == text.npos || text[key] != '"') break;
    const std::size_t end = end_of_string(text, key);
    member.key = unescaped(text.substr(key, end - key));
    member.begin = std::min(text.find_first_not_of(kSpace, text.find(':', end) + 1), text.size());
    member.end = end_of_value(text, member.begin);
    i = std::min(text.find_first_not_of(kSpace, member.end), text.size());
    members.push_back(std::move(member));
    if (i < text.size() && text[i] != ',') break;
  }
  return members;
}

std::string json_string(std::string_view text, const JsonMember& member) {
  if (text[member.begin] != '"') return {};
  return unescaped(text.substr(member.begin, member.end - member.begin));
}

void JsonEdits::replace(std::size_t begin, std::size_t end, std::string with) {
  edits_.push_back({begin, end, std::move(with)});
}

void JsonEdits::remove(const std::vector<JsonMember>& members, std::string_view key) {
  bool any_kept = false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].key != key) {
      any_kept = true;
      continue;
    }
    const bool last = i + 1 == members.size();
    const std::size_t next = last ? members[i].end : members[i + 1].before;
    if (any_kept)
      replace(members[i].before, next, {});
    else  // Without a member before it, the comma after it goes.
      replace(members[i].before + 1, last ? next : next + 1, {});
  }
}

std::string JsonEdits::apply() {
  std::ranges::sort(edits_, {}, &Edit::begin);
  std::string out;
  std::size_t at = 0;
  for (const Edit& edit : edits_) {
    out += text_.substr(at, edit.begin - at);
    out += edit.with;
    at = edit.end;
  }
  out += text_.substr(at);
  return out;
}

}  // namespace nvfp4::checkpoint
