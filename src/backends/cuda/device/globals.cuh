#pragma once

#include "quantizers/encode_block.h"

namespace nvfp4::cuda {

/// Where a kernel finds the global scale of a vector of blocks.
struct Globals {
  const GlobalScale* given = nullptr;  ///< on the device, one or one for each vector
  const float* amax = nullptr;         ///< or measured before: the same, of the input
  GlobalScale value{};                 ///< or one, from the host
  Quantizer quantizer = Quantizer::max;
  bool of_vectors = false;

  NVFP4_HD GlobalScale of(std::int64_t vector) const {
    const std::int64_t i = of_vectors ? vector : 0;
    if (given) return given[i];
    if (amax) return global_scale_for(amax[i], quantizer);
    return value;
  }
};

}  // namespace nvfp4::cuda
