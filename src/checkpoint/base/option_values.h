#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/base/json.h"
#include "nvfp4/checkpoint/options.h"

/// The values of options: read from words, shown as JSON.
namespace nvfp4::options {

/// Returns the parts of a text between separators.
std::vector<std::string> split(std::string_view text, char separator = ',');
/// Returns the keyword of a row in Python: "input_amax" for "--input-amax".
std::string keyword_of(std::string_view names, std::string_view keyword = {});
/// Returns choices without their notes.
std::vector<std::string> names_of(const std::vector<std::string>& choices);
/// Returns the text of a row, with the choices in the place of "{choices}".
std::string expanded(std::string_view text, const std::vector<std::string>& choices);

/// The rule for the words of an option.
struct Rule {
  std::vector<std::string> choices;
  bool numbered = false;  ///< a choice may have a number, as in "gptq:4"
  void (*check)(const std::string& word) = nullptr;
  double least = 0, most = 0;
};

/// Each sets a value from a word. Throws ValueError with the word and the rule.
void read(const std::string& word, const Rule& rule, bool& to);
void read(const std::string& word, const Rule& rule, int& to);
void read(const std::string& word, const Rule& rule, std::int64_t& to);
void read(const std::string& word, const Rule& rule, std::uint64_t& to);
void read(const std::string& word, const Rule& rule, double& to);
void read(const std::string& word, const Rule& rule, std::string& to);
void read(const std::string& word, const Rule& rule, std::filesystem::path& to);
void read(const std::string& word, const Rule& rule, Scheme& to);
void read(const std::string& word, const Rule& rule, Device& to);
/// Sets a size in bytes.
void read(const std::string& word, const Rule& rule, std::optional<std::uint64_t>& to);
template <class T>
void read(const std::string& word, const Rule& rule, std::optional<T>& to) {
  read(word, rule, to.emplace());
}
/// Sets all of the words, which replace the default.
void read_all(std::span<const std::string> words, const Rule& rule, Allowed& to);
void read_all(std::span<const std::string> words, const Rule& rule, std::vector<std::string>& to);
void read_all(std::span<const std::string> words, const Rule& rule, std::vector<std::int64_t>& to);

template <class T>
inline constexpr bool kIsList =
    requires(T& to, const Rule& rule) { read_all(std::span<const std::string>(), rule, to); };

/// Each shows a value: a path as its file name, what is not given as null.
inline Json json_of(bool value) { return value; }
inline Json json_of(int value) { return value; }
inline Json json_of(std::int64_t value) { return value; }
inline Json json_of(std::uint64_t value) { return value; }
inline Json json_of(double value) { return value; }
Json json_of(const std::string& value);
Json json_of(const std::filesystem::path& value);
Json json_of(Scheme value);
Json json_of(Device value);
Json json_of(const Allowed& value);
template <class T>
Json json_of(const std::vector<T>& value) {
  return value.empty() ? Json() : Json(value);
}
template <class T>
Json json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : Json();
}

/// Returns the value of a row's member as JSON.
template <class Row, class Options>
Json value_of(const Row& row, const Options& options) {
  return std::visit([&](auto member) { return json_of(options.*member); }, row.member);
}

/// Sets the member of a row from the words that were given, none for a flag. Throws ValueError.
template <class Options>
void set(const OptionRow<Options>& row, Options& options, std::span<const std::string> words) {
  const Rule rule{row.choices == nullptr ? std::vector<std::string>() : names_of(row.choices()),
                  row.value.ends_with("[:N]"), row.check, row.least, row.most};
  std::visit(
      [&](auto member) {
        auto& to = options.*member;
        using T = std::remove_reference_t<decltype(to)>;
        if constexpr (kIsList<T>) {
          read_all(words, rule, to);
        } else if constexpr (std::is_same_v<T, bool>) {
          if (words.empty())
            to = !(Options{}.*member);
          else
            read(words.back(), rule, to);
        } else {
          read(words.back(), rule, to);
        }
      },
      row.member);
}

/// Adds the members of at least this effect to a JSON object, by keyword. Values in `known` replace
/// the members; null leaves an option out.
template <class Options, std::size_t N>
void record(Json& to, const OptionRow<Options> (&rows)[N],
            const std::type_identity_t<Options>& options, Effect least, const Json& known) {
  for (const OptionRow<Options>& row : rows) {
    if (row.effect < least) continue;
    const std::string keyword = keyword_of(row.names, row.keyword);
    Json value = known.contains(keyword) ? known[keyword] : value_of(row, options);
    if (!value.is_null() && value != false) to[keyword] = std::move(value);
  }
}

/// Returns an option and its value as words of a shell.
std::string shell_words(std::string_view names, const Json& value);

/// Returns the words of a command line that give the recorded options: " --bits 5 --ignore 'x*'".
template <class Options, std::size_t N>
std::string words_of(const OptionRow<Options> (&rows)[N], const Json& recorded) {
  std::string words;
  for (const OptionRow<Options>& row : rows) {
    const std::string keyword = keyword_of(row.names, row.keyword);
    if (recorded.contains(keyword)) words += shell_words(row.names, recorded[keyword]);
  }
  return words;
}

}  // namespace nvfp4::options

namespace nvfp4 {

/// Returns `text` as one word for a shell: bare, in quotes, or in bash's $'...' with escapes. The
/// last form is for characters that could disturb a terminal.
std::string shell_word(std::string_view text);

}  // namespace nvfp4
