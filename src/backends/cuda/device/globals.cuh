#pragma once

#include "quantizers/encode_block.h"

namespace nvfp4::cuda {

/// The source of the global scale of each vector.
struct Globals {
  const GlobalScale* given = nullptr;  ///< on the device: one, or one for each vector
  /// On the device: measured amaxes of the input, one or one for each vector.
  const float* amax = nullptr;
  GlobalScale value{};  ///< used if both pointers are null
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
