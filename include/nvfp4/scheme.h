#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4 {

/// What is in NVFP4 when a layer runs.
enum class Scheme : std::uint8_t {
  nvfp4,     ///< W4A4: weights and, at run time, activations; checkpoints hold input scales
  nvfp4a16,  ///< W4A16: weights only
};
std::string_view scheme_name(Scheme scheme);
/// Throws ValueError that lists the known names.
Scheme scheme_from_name(std::string_view name);
std::vector<std::string> scheme_names();

}  // namespace nvfp4
