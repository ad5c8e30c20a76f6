#pragma once

#include <span>

namespace nvfp4::cuda {

/// The cost of a tile and split on an H200, in microseconds. No value is negative.
struct KernelCost {
  int m, n, split_k;
  double start;     ///< once for each launch
  double round;     ///< for each round, in which every multiprocessor has a block
  double step;      ///< for each stage of a round; a small-M stage is two chunks of every part
  double megabyte;  ///< for each megabyte of weights
  double wave;      ///< for each wave of blocks after the first
};

/// Returns an entry for each kernel except the routed ones.
std::span<const KernelCost> kernel_costs();

}  // namespace nvfp4::cuda
