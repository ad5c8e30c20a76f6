#pragma once

#include <string_view>

namespace nvfp4::checkpoint {

enum class Where {
  any,    ///< one of the parts of the module's name
  first,  ///< its first part
  last,   ///< its last parts, as many as the pattern has
  last3,  ///< one of its last three parts
  whole,  ///< all of its parts
};

/// Patterns are separated by spaces: "x" is a part of a name, "x*" begins one, "*x" ends one, "*x*"
/// is in one; dots separate parts.
struct NameRule {
  std::string_view kind;  ///< empty: the module is none of those that the table's later rules name
  std::string_view reason;
  Where where;
  std::string_view names;
  bool linear = true;  ///< a loader may build the module as a linear layer
};

}  // namespace nvfp4::checkpoint
