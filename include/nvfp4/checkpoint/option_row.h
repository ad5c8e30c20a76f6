#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "nvfp4/device.h"
#include "nvfp4/scheme.h"

/// The rows of tables of options. The command line, help, completions, Python functions, journals
/// and model cards are loops over these rows.
namespace nvfp4 {

struct Allowed;

/// The part of an output that depends on an option.
enum class Effect : std::uint8_t {
  none,     ///< nothing: the option is about where and how the work is done
  allowed,  ///< nothing, but a run may fail without it
  form,     ///< files, tensors and types, which the configuration shows
  values,   ///< values, so the metadata of the output names the option
};

/// The member that an option sets. An optional unsigned number is a size in bytes.
template <class Options>
using OptionMember =
    std::variant<bool Options::*, int Options::*, std::int64_t Options::*, std::uint64_t Options::*,
                 double Options::*, std::string Options::*, std::filesystem::path Options::*,
                 Scheme Options::*, Device Options::*, Allowed Options::*,
                 std::vector<std::string> Options::*, std::vector<std::int64_t> Options::*,
                 std::optional<int> Options::*, std::optional<std::uint64_t> Options::*,
                 std::optional<double> Options::*, std::optional<std::string> Options::*,
                 std::optional<std::filesystem::path> Options::*, std::optional<Scheme> Options::*,
                 std::optional<Device> Options::*>;

/// An option or argument of a command. The member's initial value is the default.
template <class Options>
struct OptionRow {
  /// The name of an argument ("INPUT"; "[COMMAND]" may be absent), or all names of an option, the
  /// first one first: "--input-amax", "--statistics,--imatrix", "-q,--quiet". A flag "--no-x" sets
  /// a member to false.
  std::string_view names;
  OptionMember<Options> member;
  /// The value in help, such as "FILE"; "" for an argument or a flag. "NAME[:N]" is one of the
  /// choices with a number.
  std::string_view value = {};
  /// One or more sentences, the last without full stop. "{choices}" stands for all choices.
  std::string_view text = {};
  Effect effect = Effect::none;
  /// Returns the valid values, with a note as in "gguf: one file". Null: any value.
  std::vector<std::string> (*choices)() = nullptr;
  /// Throws ValueError for a wrong word. Null: the type and the choices decide.
  void (*check)(const std::string& word) = nullptr;
  double least = 0, most = std::numeric_limits<double>::infinity();  ///< limits of a number
  /// The keyword in Python. "": it follows from the first name.
  std::string_view keyword = {};
  /// Former names, separated by commas. The value that stands for a former flag follows its name:
  /// "--old,--old-flag value".
  std::string_view former = {};
  bool model = false;     ///< the path may be the name of a model on the Hugging Face Hub
  bool python = true;     ///< the function in Python has the option
  bool required = false;  ///< arguments are required in any case
};

}  // namespace nvfp4
