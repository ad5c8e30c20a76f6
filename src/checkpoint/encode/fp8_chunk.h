#pragma once

#include "checkpoint/encode/chunk.h"

/// FP8 weights: E4M3 elements with FP32 scales for the matrix, each row or each 128 x 128 block.
/// MXFP8 has exponents for each 32 columns.
namespace nvfp4::checkpoint {

/// Returns the scale of elements whose largest magnitude is `amax`: amax / 448, at least the
/// smallest normal float. It is 1 for zeros.
float fp8_scale(float amax);

/// Returns the MXFP8 exponent of such elements, as E8M0. It is that of the smallest power of two
/// under which no element exceeds 448, and 0 for zeros. Source: OCP Microscaling Formats 1.0,
/// section 5.1, with the exponent rounded up, as in ModelOpt
/// (modelopt/torch/quantization/qtensor/mxfp8_tensor.py).
std::uint8_t mxfp8_exponent(float amax);

/// Returns the size of the scales of the unit's first `rows` rows. With blocks, `rows` is a
/// multiple of 128 or all rows.
std::uint64_t fp8_scale_bytes(const Unit& unit, std::int64_t rows);

/// Encodes rows [row, row + rows) of the unit as E4M3(x / scale). The quotient is rounded to FP32
/// first, as in PyTorch. `of_matrix` is the scale if unit.fp8 is `tensor`. Otherwise the result has
/// the scales of rows or blocks. With blocks, `row` is a multiple of 128.
EncodedChunk encode_fp8_chunk(const LogicalTensor& tensor, const Unit& unit, std::int64_t row,
                              std::int64_t rows, float of_matrix, Buffers& buffers);

}  // namespace nvfp4::checkpoint
