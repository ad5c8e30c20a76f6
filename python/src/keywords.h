#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "commands/commands.h"
#include "core/printable.h"
#include "nvfp4/error.h"

/// The arguments of a function on checkpoints, by their names in commands/commands.h.
namespace nvfp4::python {

namespace nb = nanobind;

class Keywords {
 public:
  Keywords(std::string_view command, const nb::dict& given)
      : command_(nvfp4::command(command)), given_(given) {}

  /// Sets `to` if the keyword is given and not None. Throws nb::type_error, and ValueError for a
  /// word that is not a choice of the option.
  template <class T>
  void take(const char* keyword, T& to) const {
    if (!given_.contains(keyword)) return;
    const nb::object value = given_[keyword];
    if (value.is_none()) return;
    try {
      to = nb::cast<T>(value);
    } catch (const std::bad_cast&) {
      constexpr std::size_t kMost = 100;
      const std::string given = printable(nb::repr(value).c_str(), kMost);
      throw nb::type_error(
          (std::string(keyword) + " = " + given + ", must be " + rule_of<T>()).c_str());
    }
    if constexpr (std::is_same_v<T, std::string>) check(keyword, to);
  }
  /// Returns the word, or `otherwise` if it is not given.
  std::string word(const char* keyword, std::string otherwise = {}) const {
    take(keyword, otherwise);
    return otherwise;
  }

 private:
  template <class T>
  static constexpr const char* rule_of() {
    if constexpr (std::is_same_v<T, bool>) return "True or False";
    if constexpr (std::is_integral_v<T>) return "an integer in range";
    if constexpr (std::is_floating_point_v<T>) return "a number";
    if constexpr (std::is_same_v<T, std::string>) return "a string";
    if constexpr (std::is_same_v<T, std::filesystem::path>) return "a path";
    if constexpr (std::is_same_v<T, std::vector<std::string>>) return "a list of strings";
    if constexpr (requires { typename T::value_type; }) return rule_of<typename T::value_type>();
    return "a value of the type in its documentation";
  }

  void check(std::string_view keyword, const std::string& word) const {
    for (const CommandOption& o : command_.options) {
      if (o.keyword != keyword || o.choices.empty() || word.empty()) continue;
      if (keyword == "method" && word.find(':') != word.npos) continue;  // "gptq:4"
      std::string known;
      for (const std::string& choice : o.choices) {
        if (choice == word) return;
        known += (known.empty() ? "" : ", ") + choice;
      }
      throw ValueError(o.keyword + " = '" + word + "', must be one of " + known,
                       ErrorCode::not_a_choice);
    }
  }

  const Command& command_;
  const nb::dict& given_;
};

}  // namespace nvfp4::python
