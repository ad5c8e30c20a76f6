#pragma once

#include <optional>

#include "arrays.h"
#include "nvfp4/gemm.h"

namespace nvfp4::python {

/// Packed weights in memory of the library or in an array of the caller, which is kept alive. Only
/// packing writes to that memory. JAX arrays are read only and cannot be used.
struct Packed {
  std::optional<Input> memory;
  PackedWeights weights;
};

}  // namespace nvfp4::python
