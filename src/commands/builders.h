#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands/commands.h"

/// Functions that build the rows of the table of commands.
namespace nvfp4::command_table {

using Options = std::vector<CommandOption>;

/// Returns the Python keyword: "--input-amax" -> "input_amax". Of two names the first counts.
inline std::string keyword_of(std::string_view names) {
  const std::string_view first = names.substr(0, names.find(','));
  std::string keyword(first.substr(std::min(first.find_first_not_of('-'), first.size())));
  for (char& c : keyword)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return keyword;
}

inline CommandOption argument(std::string_view name, std::string text) {
  return {.names = std::string(name),
          .keyword = keyword_of(name),
          .text = std::move(text),
          .required = true};
}

inline CommandOption flag(std::string_view names, std::string text) {
  return {.names = std::string(names), .keyword = keyword_of(names), .text = std::move(text)};
}

inline CommandOption option(std::string_view names, std::string value, std::string fallback,
                            std::string text, std::vector<std::string> choices = {}) {
  return {.names = std::string(names),
          .value = std::move(value),
          .keyword = keyword_of(names),
          .fallback = std::move(fallback),
          .text = std::move(text),
          .choices = std::move(choices)};
}

inline CommandOption repeatable(CommandOption option) {
  option.repeatable = true;
  return option;
}

/// Returns an option without Python keyword, for the place of execution and for output.
inline CommandOption of_the_command(CommandOption option) {
  option.keyword.clear();
  return option;
}

inline CommandOption in_python(std::string keyword, CommandOption option) {
  option.keyword = std::move(keyword);
  return option;
}

inline CommandOption threads_option() {
  return of_the_command(option("--threads", "N", "",
                               "threads to use; all CPUs that this process may use if not given"));
}

inline CommandOption json(std::string text) {
  return of_the_command(flag("--json", std::move(text)));
}
inline CommandOption quiet(std::string text) {
  return of_the_command(flag("-q,--quiet", std::move(text)));
}

}  // namespace nvfp4::command_table
