#pragma once

#include <type_traits>

#include "checkpoint/base/option_values.h"
#include "commands/commands.h"

/// Commands from the rows of their options.
namespace nvfp4 {

template <class T>
constexpr OptionKind kind_of(bool has_choices) {
  if constexpr (std::is_same_v<T, bool>) return has_choices ? OptionKind::word : OptionKind::flag;
  if constexpr (std::is_same_v<T, std::optional<std::uint64_t>>) return OptionKind::size;
  if constexpr (std::is_integral_v<T> || std::is_same_v<T, std::optional<int>>)
    return OptionKind::integer;
  if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>)
    return OptionKind::number;
  if constexpr (std::is_same_v<T, std::filesystem::path> ||
                std::is_same_v<T, std::optional<std::filesystem::path>>)
    return OptionKind::path;
  return options::kIsList<T> ? OptionKind::list : OptionKind::word;
}

inline std::filesystem::path* path_of(std::filesystem::path& path) { return &path; }
inline std::filesystem::path* path_of(std::optional<std::filesystem::path>& path) {
  return path ? &*path : nullptr;
}

/// Returns the option of a row, whose members are in an object of type Arguments. The row must
/// outlive the option.
template <class Arguments, class Options>
CommandOption option_of(const OptionRow<Options>& row) {
  const auto all = row.choices == nullptr ? std::vector<std::string>() : row.choices();
  CommandOption option{.names = std::string(row.names),
                       .value = std::string(row.value),
                       .keyword = row.python ? options::keyword_of(row.names, row.keyword) : "",
                       .text = options::expanded(row.text, all),
                       .choices = options::names_of(all),
                       .former = std::string(row.former),
                       .fallback = options::value_of(row, Options{}),
                       .required = row.required || (row.names[0] != '-' && row.names[0] != '['),
                       .model = row.model};
  option.set = [&row](void* arguments, std::span<const std::string> words) {
    options::set(row, static_cast<Options&>(*static_cast<Arguments*>(arguments)), words);
  };
  std::visit(
      [&]<class T>(T Options::*member) {
        option.kind = kind_of<T>(!all.empty());
        if constexpr (requires(T& value) { path_of(value); })
          option.path = [member](void* arguments) {
            return path_of(static_cast<Options&>(*static_cast<Arguments*>(arguments)).*member);
          };
      },
      row.member);
  if (option.kind == OptionKind::path) option.choices.clear();  // names of recipes, or any file
  if (option.fallback.is_boolean() && !option.choices.empty())
    option.fallback = option.fallback == true ? option.choices.back() : option.choices.front();
  const bool is_number = option.kind == OptionKind::integer || option.kind == OptionKind::number;
  if (is_number && option.text.find("if not given") == std::string::npos &&
      !option.fallback.is_null())
    option.text += "; " + option.fallback.dump() + " if not given";
  return option;
}

/// Adds the options of rows to a command.
template <class Arguments, class Options, std::size_t N>
void add_rows(Command& to, const OptionRow<Options> (&rows)[N]) {
  for (const OptionRow<Options>& row : rows) to.options.push_back(option_of<Arguments>(row));
}

/// Returns a command with its name, Python function, summary and notes, and the options of all
/// rows.
template <class Arguments, class... Rows>
Command make_command(Command about, const Rows&... rows) {
  about.arguments = typeid(Arguments);
  (add_rows<Arguments>(about, rows), ...);
  const auto first =
      std::ranges::find_if(about.options, [](const auto& option) { return !option.is_argument(); });
  about.options.insert(first, {.names = "-h,--help", .text = "show this help"});
  return about;
}

}  // namespace nvfp4
