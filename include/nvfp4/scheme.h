#pragma once

#include <cstdint>

namespace nvfp4 {

/// What is in NVFP4 when a layer runs.
enum class Scheme : std::uint8_t {
  nvfp4,     ///< W4A4: weights and, at run time, activations; checkpoints hold input scales
  nvfp4a16,  ///< W4A16: weights only
};

}  // namespace nvfp4
