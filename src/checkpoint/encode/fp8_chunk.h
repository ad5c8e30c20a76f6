#pragma once

#include "checkpoint/encode/chunk.h"

/// FP8 weights: E4M3 elements and FP32 scales, for the matrix, each row or each 128 x 128 block; of
/// MXFP8 exponents, for each 32 columns.
namespace nvfp4::checkpoint {

/// The scale of elements whose largest magnitude is `amax`: amax / 448, but 1 for zeros, and never
/// below the normal floats.
float fp8_scale(float amax);

/// The exponent of MXFP8 of such elements, as E8M0 has it: of the smallest power of two under which
/// none is above 448, and 0 for zeros. Source: OCP Microscaling Formats 1.0, section 5.1, rounding
/// the exponent up, as ModelOpt does (modelopt/torch/quantization/qtensor/mxfp8_tensor.py).
std::uint8_t mxfp8_exponent(float amax);

/// Bytes of the scales of the unit's first `rows` rows; of blocks a multiple of 128, or all.
std::uint64_t fp8_scale_bytes(const Unit& unit, std::int64_t rows);

/// Rows [row, row + rows) of the unit, whose scales are of unit.fp8: elements are
/// E4M3(x / scale), the quotient rounded to FP32 first, as PyTorch does it. `of_matrix`: the scale
/// that all of them have, where they have one; else those of the rows or blocks are the result's
/// scales. Of blocks, row is a multiple of 128.
EncodedChunk encode_fp8_chunk(const LogicalTensor& tensor, const Unit& unit, std::int64_t row,
                              std::int64_t rows, float of_matrix, Buffers& buffers);

}  // namespace nvfp4::checkpoint
