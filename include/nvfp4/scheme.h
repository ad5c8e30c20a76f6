#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4 {

/// The operands of a layer that are NVFP4 at run time.
enum class Scheme : std::uint8_t {
  w4a4,   ///< weights and activations; checkpoints hold input scales
  w4a16,  ///< weights only
};
/// Returns "w4a4" or "w4a16".
std::string_view scheme_name(Scheme scheme);
/// Returns the scheme with this name. Throws ValueError, which lists the known names.
Scheme scheme_from_name(std::string_view name);
/// Returns the names of all schemes.
std::vector<std::string> scheme_names();

}  // namespace nvfp4
