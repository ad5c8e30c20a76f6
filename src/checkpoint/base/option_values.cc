#include "checkpoint/base/option_values.h"

#include <fmt/ranges.h>

#include <charconv>

#include "core/printable.h"
#include "core/require.h"

namespace nvfp4 {
namespace {

using options::Rule;

struct Loss {
  std::string_view name;
  bool Allowed::*member;
};
constexpr Loss kLosses[] = {{"drop", &Allowed::drop},
                            {"broken-scales", &Allowed::broken_scales},
                            {"decode", &Allowed::decode},
                            {"round", &Allowed::round}};

/// Throws ValueError unless the word, or its part before a number as in "gptq:4", is a choice.
void require_choice(const std::string& word, const Rule& rule) {
  const auto is_choice = [&](std::string_view name) {
    return std::ranges::find(rule.choices, name) != rule.choices.end();
  };
  require<ValueError>(
      is_choice(word) || (rule.numbered && is_choice(word.substr(0, word.find(':')))),
      ErrorCode::not_a_choice, "'{}', must be one of {}", printable(word),
      fmt::join(rule.choices, ", "));
}

/// Reads a decimal number, also one that begins with 0.
template <class N>
void read_number(const std::string& word, const Rule& rule, N& to) {
  N number{};
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, number);
  const bool is_there = error == std::errc{} && rest == end;
  if (is_there && static_cast<double>(number) >= rule.least &&
      static_cast<double>(number) <= rule.most) {
    to = number;
    return;
  }
  constexpr N kMost = std::numeric_limits<N>::max();
  const N most = rule.most < static_cast<double>(kMost) ? static_cast<N>(rule.most) : kMost;
  throw ValueError(fmt::format("'{}', must be {} from {} to {}", printable(word),
                               std::is_integral_v<N> ? "an integer" : "a number", rule.least,
                               most));
}

}  // namespace

std::string shell_word(std::string_view text) {
  constexpr std::string_view kBare =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@%+=:,./_-";
  if (!text.empty() && text.find_first_not_of(kBare) == text.npos) return std::string(text);
  const bool plain = printable(text, text.size()) == text;
  std::string out = plain ? "'" : "$'";
  for (const char c : text) {
    if (!plain && (c < ' ' || c > '~'))
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else if (c == '\'')
      out += plain ? "'\\''" : "\\'";
    else if (c == '\\' && !plain)
      out += "\\\\";
    else
      out += c;
  }
  return out + "'";
}

namespace options {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string keyword_of(std::string_view names, std::string_view keyword) {
  if (!keyword.empty()) return std::string(keyword);
  std::string word = split(names).front();
  word.erase(0, std::min(word.find_first_not_of("-["), word.size()));
  std::erase(word, ']');
  std::ranges::transform(word, word.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::tolower(c));
  });
  return word;
}

std::vector<std::string> names_of(const std::vector<std::string>& choices) {
  std::vector<std::string> names;
  for (const std::string& choice : choices) names.push_back(split(choice, ':').front());
  return names;
}

std::string expanded(std::string_view text, const std::vector<std::string>& choices) {
  std::string out(text);
  constexpr std::string_view kPlace = "{choices}";
  const std::size_t at = out.find(kPlace);
  if (at == out.npos) return out;
  const bool notes = std::ranges::any_of(
      choices, [](const std::string& choice) { return choice.find(':') != choice.npos; });
  return out.replace(at, kPlace.size(), fmt::format("{}", fmt::join(choices, notes ? "; " : ", ")));
}

void read(const std::string& word, const Rule& rule, bool& to) {
  if (!rule.choices.empty()) require_choice(word, rule);
  to = rule.choices.empty() ? word == "true" : word == rule.choices.back();
}
void read(const std::string& word, const Rule& rule, int& to) { read_number(word, rule, to); }
void read(const std::string& word, const Rule& rule, std::int64_t& to) {
  read_number(word, rule, to);
}
void read(const std::string& word, const Rule& rule, std::uint64_t& to) {
  read_number(word, rule, to);
}
void read(const std::string& word, const Rule& rule, double& to) { read_number(word, rule, to); }
void read(const std::string& word, const Rule& rule, std::string& to) {
  require<ValueError>(!word.empty(), "'', must not be empty");
  if (!rule.choices.empty()) require_choice(word, rule);
  if (rule.check != nullptr) rule.check(word);
  to = word;
}
void read(const std::string& word, const Rule& /*rule*/, std::filesystem::path& to) {
  require<ValueError>(!word.empty(), "'', must not be empty");
  to = word;
}
void read(const std::string& word, const Rule& /*rule*/, Scheme& to) {
  to = scheme_from_name(word);
}
void read(const std::string& word, const Rule& /*rule*/, Device& to) {
  to = device_from_name(word);
}
void read(const std::string& word, const Rule& /*rule*/, std::optional<std::uint64_t>& to) {
  to = size_from_text(word);
}

void read_all(std::span<const std::string> words, const Rule& rule, Allowed& to) {
  to = {};
  for (const std::string& list : words)
    for (const std::string& word : split(list)) {
      require_choice(word, rule);
      for (const Loss& loss : kLosses)
        if (loss.name == word) to.*loss.member = true;
    }
}
void read_all(std::span<const std::string> words, const Rule& rule, std::vector<std::string>& to) {
  to.clear();
  for (const std::string& word : words) read(word, rule, to.emplace_back());
}
void read_all(std::span<const std::string> words, const Rule& rule, std::vector<std::int64_t>& to) {
  to.clear();
  for (const std::string& list : words)
    for (const std::string& word : split(list)) read(word, rule, to.emplace_back());
}

Json json_of(const std::string& value) { return value.empty() ? Json() : Json(value); }
Json json_of(const std::filesystem::path& value) { return json_of(value.filename().string()); }
Json json_of(Scheme value) { return std::string(scheme_name(value)); }
Json json_of(Device value) { return device_name(value); }
Json json_of(const Allowed& value) {
  std::vector<std::string_view> names;
  for (const Loss& loss : kLosses)
    if (value.*loss.member) names.push_back(loss.name);
  return json_of(fmt::format("{}", fmt::join(names, ",")));
}

std::string shell_words(std::string_view names, const Json& value) {
  const std::string name = split(names).front();
  if (value == true) return " " + name;
  std::string words;
  for (const Json& one : value.is_array() ? value : Json::array({value}))
    words += fmt::format(" {} {}", name,
                         shell_word(one.is_string() ? one.get<std::string>() : one.dump()));
  return words;
}

}  // namespace options
}  // namespace nvfp4
