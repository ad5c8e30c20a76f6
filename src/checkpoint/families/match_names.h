#pragma once

#include <span>
#include <string_view>

namespace nvfp4::checkpoint {

enum class Where {
  any,    ///< one part of the module's name
  first,  ///< the first part
  last,   ///< the last parts, as many as the pattern has
  last3,  ///< one of the last three parts
  whole,  ///< all parts
};

/// A rule for modules by name. Patterns are separated by spaces, their parts by dots. "x" is a
/// whole part, "x*" starts a part, "*x" ends it, "*x*" is inside it.
struct NameRule {
  /// "": stop here. The module is ordinary, although a later rule would match.
  std::string_view kind;
  std::string_view reason;
  Where where;
  std::string_view names;
  bool linear = true;  ///< a loader may build the module as a linear layer
};

using Parts = std::span<const std::string_view>;

/// Reports whether a pattern of a list, as in NameRule, matches the parts of a module's name.
bool matches_one(std::string_view patterns, Where where, Parts parts);
/// Reports whether a pattern matches the whole `model_type`.
bool is_model_type(std::string_view patterns, std::string_view model_type);

}  // namespace nvfp4::checkpoint
