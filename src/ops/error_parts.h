#pragma once

#include <span>

#include "nvfp4/quantize.h"
#include "quantizers/error_sum.h"

/// quantization_error() of what lies on a GPU, without waiting for it.
namespace nvfp4 {

/// How many error_parts_into() writes.
inline std::int64_t error_part_count(const QuantizedShape& shape) {
  return error_groups(shape.vectors() * shape.blocks());
}

/// The errors of each group of blocks; `parts` lies on the device of x and q. Allocates nothing,
/// and only enqueues. Throws ShapeError, DeviceError, UnsupportedError.
void error_parts_into(MatrixView x, QuantizedView q, QuantizationError* parts, Stream stream = {});

/// Their sum on the CPU: what quantization_error() returns.
QuantizationError sum_parts(std::span<const QuantizationError> parts);

}  // namespace nvfp4
