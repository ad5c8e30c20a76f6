#pragma once

#include <string>
#include <string_view>

namespace nvfp4::checkpoint {

/// Reports whether a part of a name has digits only.
inline bool is_number(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Returns "model.layers.*.mlp.up_proj" for "model.layers.7.mlp.up_proj".
std::string template_of(std::string_view module);

}  // namespace nvfp4::checkpoint
