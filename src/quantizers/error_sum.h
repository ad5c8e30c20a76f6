#pragma once

#include <cstdint>

#include "nvfp4/layout.h"

/// The order of the sums in quantization_error(). It is the same for every backend, number of
/// threads and launch shape. docs/numerics.md describes it in words.
namespace nvfp4 {

/// Number of blocks whose errors form one part. Blocks are taken in the order of memory: along the
/// rows, or down the columns one row of blocks after the other.
inline constexpr int kErrorGroup = 128;
/// Number of interleaved sums of a group.
inline constexpr int kErrorSums = 32;

/// Returns the number of parts.
NVFP4_HD constexpr std::int64_t error_groups(std::int64_t blocks) {
  return ceil_div(blocks, kErrorGroup);
}

/// Squared error of one block and squared norm of its input, as FP32 partial sums.
struct BlockError {
  float squares[4] = {0, 0, 0, 0}, norms[4] = {0, 0, 0, 0};

  NVFP4_HD void add(int i, float x, float decoded) {
    const float d = x - decoded;
    squares[i % 4] = squares[i % 4] + d * d;
    norms[i % 4] = norms[i % 4] + x * x;
  }
  NVFP4_HD float squared_error() const {
    return (squares[0] + squares[1]) + (squares[2] + squares[3]);
  }
  NVFP4_HD float squared_norm() const { return (norms[0] + norms[1]) + (norms[2] + norms[3]); }
};

/// Returns the sum over a group. Elements behind its last block are zero.
inline double sum_group(const float (&blocks)[kErrorGroup]) {
  double sums[kErrorSums];
  for (int j = 0; j < kErrorSums; ++j) sums[j] = static_cast<double>(blocks[j]);
  for (int i = kErrorSums; i < kErrorGroup; i += kErrorSums)
    for (int j = 0; j < kErrorSums; ++j) sums[j] += static_cast<double>(blocks[i + j]);
  for (int step = kErrorSums / 2; step > 0; step /= 2)
    for (int j = 0; j < step; ++j) sums[j] += sums[j + step];
  return sums[0];
}

}  // namespace nvfp4
