#pragma once

#include <string_view>

namespace nvfp4::checkpoint {

/// Reports whether a part of a name has digits only.
inline bool is_number(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace nvfp4::checkpoint
