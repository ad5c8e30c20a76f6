#pragma once

#include "checkpoint/encode/chunk.h"

namespace nvfp4::checkpoint {

/// What rows [row, row + rows) of the unit, encoded as NVFP4 or FP8, add to the output error over
/// the calibration text where the errors of two inputs have nothing to do with each other: squared
/// errors times the sum of squares of their channel. `global`: the multiplier, or the scale of FP8
/// with one for the matrix.
double weighted_error(const LogicalTensor& tensor, const Unit& unit, std::int64_t row,
                      std::int64_t rows, const EncodedChunk& chunk, float global,
                      std::span<const double> squares);

}  // namespace nvfp4::checkpoint
