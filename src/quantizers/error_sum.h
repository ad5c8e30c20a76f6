#pragma once

#include <cstdint>

#include "nvfp4/layout.h"

/// How quantization_error() adds up: the same order for every backend, number of threads and launch
/// shape. docs/numerics.md says it in words.
namespace nvfp4 {

/// Blocks whose errors are added to one part, in the order in which they lie in memory: along the
/// rows, or down the columns one row of blocks after the other.
inline constexpr int kErrorGroup = 128;
/// Sums of a group that its blocks are dealt to.
inline constexpr int kErrorSums = 32;

NVFP4_HD constexpr std::int64_t error_groups(std::int64_t blocks) {
  return ceil_div(blocks, kErrorGroup);
}

/// Of one block, in FP32.
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

/// Of a group, zeros behind its last block.
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
