#pragma once

#include <string>
#include <string_view>
#include <vector>

/// The commands, their arguments and options as data. `nvfp4 help`, the docstrings of the Python
/// functions, manual pages and completions are generated from these texts.
namespace nvfp4 {

/// An option or argument of a command.
struct CommandOption {
  /// The name of an argument ("INPUT"), or all names of an option, the first one first:
  /// "--input-amax", "--statistics,--imatrix", "-q,--quiet".
  std::string names = {};
  std::string value = {};  ///< value in help, such as "FILE"; "": an argument or a flag
  /// The keyword of the Python function, such as "input_amax"; "" if only the command has the
  /// option. It follows from the name, unless Python forbids that name or has the opposite sense.
  std::string keyword = {};
  std::string fallback = {};              ///< default value; "": none, or a flag
  std::string text = {};                  ///< one or more sentences, the last without full stop
  std::vector<std::string> choices = {};  ///< all valid values; empty: any, or too many to list
  bool required = false, repeatable = false;

  bool is_argument() const { return !names.starts_with('-'); }
  bool is_flag() const { return value.empty() && !is_argument(); }
};

/// A command with its arguments and options.
struct Command {
  std::string name;      ///< such as "quantize"
  std::string function;  ///< Python function such as "quantize_checkpoint"; "": none
  std::string summary;
  std::vector<CommandOption> options;  ///< arguments first
  std::string notes;                   ///< text of help below the options, examples last

  /// Returns the option with this name among its names, or null.
  const CommandOption* find(std::string_view option) const;
};

/// Returns the commands in the order of help. The choices depend on this build and machine.
const std::vector<Command>& commands();
/// Returns the command with this name. Throws ValueError.
const Command& command(std::string_view name);

}  // namespace nvfp4
