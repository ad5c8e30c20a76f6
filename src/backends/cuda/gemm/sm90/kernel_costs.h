#pragma once

#include <span>

namespace nvfp4::cuda {

/// Microseconds of a tile and split on an H200, none of them negative.
struct KernelCost {
  int m, n, split_k;
  double start;     ///< once
  double round;     ///< each time that all multiprocessors have a block
  double step;      ///< a stage of each round: in a tile of strips two chunks of every part
  double megabyte;  ///< of weights
  double wave;      ///< each time that blocks end and others begin, but for the first
};

/// A line for each kernel that is not for a routing.
std::span<const KernelCost> kernel_costs();

}  // namespace nvfp4::cuda
