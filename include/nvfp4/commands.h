#pragma once

#include <string>
#include <string_view>
#include <vector>

/// The commands, their arguments and options as data. `nvfp4 help`, the docstrings of Python's
/// functions, manual pages and completions are made from these texts.
namespace nvfp4 {

struct CommandOption {
  /// "INPUT", an argument; "--input-amax"; all names of an option, the first one first:
  /// "--quantizer,--scale-search", "-q,--quiet".
  std::string names = {};
  std::string value = {};  ///< what help writes for the value: "FILE"; "": an argument, or a flag
  /// Of the Python function: "input_amax"; "" if only the command has it. Derived from the name,
  /// but where Python forbids that or says the opposite.
  std::string keyword = {};
  std::string fallback = {};  ///< the value if it is not given; "" for none, and for flags
  std::string text = {};      ///< one sentence or more, without a full stop
  std::vector<std::string> choices =
      {};  ///< all values that it takes; empty: any, or too many to list
  bool required = false, repeatable = false;

  bool is_argument() const { return !names.starts_with('-'); }
  bool is_flag() const { return value.empty() && !is_argument(); }
};

struct Command {
  std::string name;      ///< "quantize"
  std::string function;  ///< of Python: "quantize_checkpoint"; "" if it has none
  std::string summary;
  std::vector<CommandOption> options;  ///< arguments first
  std::string notes;                   ///< what help says below them, examples last

  /// The one that has this name among its names; null if there is none.
  const CommandOption* find(std::string_view option) const;
};

/// In the order of help. The choices are those of this build and machine.
const std::vector<Command>& commands();
/// Throws ValueError.
const Command& command(std::string_view name);

}  // namespace nvfp4
