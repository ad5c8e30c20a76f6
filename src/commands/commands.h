#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "checkpoint/base/json.h"

/// The commands with their options as data. The command line, `nvfp4 help`, manual pages,
/// completions, and the functions of the Python package with their docstrings are made from these.
namespace nvfp4 {

/// The form of an option's value.
enum class OptionKind : std::uint8_t { flag, integer, number, size, word, path, list };
/// Returns "flag", "integer", ...
std::string_view kind_name(OptionKind kind);

/// An option or argument of a command: a row of a table (nvfp4/checkpoint/option_row.h) whose
/// choices are those of this build and machine.
struct CommandOption {
  std::string names = {};  ///< "INPUT", "--bits", "-q,--quiet"
  std::string value = {};  ///< value in help, such as "FILE"; "": an argument or a flag
  std::string keyword =
      {};                 ///< keyword of the Python function; "" if only the command has the option
  std::string text = {};  ///< one or more sentences, the last without full stop
  std::vector<std::string> choices = {};  ///< names of all valid values; empty: any
  std::string former = {};                ///< as OptionRow::former
  OptionKind kind = OptionKind::flag;
  Json fallback = {};  ///< default value; null: none
  bool required = false, model = false;
  /// Sets the member of the command's arguments from the words. Throws ValueError.
  std::function<void(void* arguments, std::span<const std::string> words)> set = {};
  /// Returns the path of the arguments, or null if it has none.
  std::function<std::filesystem::path*(void* arguments)> path = {};

  bool is_argument() const { return !names.starts_with('-'); }
  bool is_flag() const { return value.empty() && !is_argument(); }
  /// Returns the first name.
  std::string name() const { return names.substr(0, names.find(',')); }
};

/// A command with its arguments and options.
struct Command {
  std::string name = {};      ///< such as "quantize"; "": the program
  std::string function = {};  ///< Python function such as "quantize_checkpoint"; "": none
  std::string summary = {};
  std::string notes = {};  ///< text of help below the options, examples last
  std::type_index arguments = typeid(void);
  std::vector<CommandOption> options = {};  ///< arguments first

  /// Returns the option with this name among its names, or null.
  const CommandOption* find(std::string_view option) const;
  /// Returns the option with this keyword, or null.
  const CommandOption* find_keyword(std::string_view keyword) const;
  /// Returns the option that has the place of a former name, such as "--allow drop", or "".
  std::string place_of_former(std::string_view name) const;
};

/// Returns the program's own flags.
const Command& program();
/// Returns the commands in the order of help.
const std::vector<Command>& commands();
/// Returns the command with this name. Throws ValueError.
const Command& command(std::string_view name);

}  // namespace nvfp4
