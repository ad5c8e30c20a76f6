#pragma once

#include <span>

#include "nvfp4/quantize.h"
#include "quantizers/error_sum.h"

/// The parts of quantization_error() on a GPU, without waiting for it.
namespace nvfp4 {

/// Returns the number of parts that error_parts_into() writes.
inline std::int64_t error_part_count(const QuantizedShape& shape) {
  return error_groups(shape.vectors() * shape.blocks());
}

/// Writes the error of each group of blocks. `parts` is on the device of x and q. The call only
/// enqueues work and allocates nothing. Throws ShapeError, DeviceError, UnsupportedError.
void error_parts_into(MatrixView x, QuantizedView q, QuantizationError* parts, Stream stream = {});

/// Returns the sum of the parts, added on the CPU: the result of quantization_error().
QuantizationError sum_parts(std::span<const QuantizationError> parts);

}  // namespace nvfp4
