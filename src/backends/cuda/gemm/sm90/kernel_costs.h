#pragma once

#include <span>

#include "backends/cuda/gemm/sm90/kernels.h"

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

constexpr bool has_cost(std::span<const KernelCost> costs, const KernelConfig& t) {
  for (const KernelCost& c : costs)
    if (c.m == t.m && c.n == t.n && c.split_k == t.split_k) return true;
  return false;
}
/// Reports whether every kernel except the routed ones has an entry.
constexpr bool has_costs_of_all(std::span<const KernelCost> costs) {
  for (const KernelEntry& e : kSm90Kernels)
    for (int split = 1; split <= e.split_k; split *= 2)
      if (e.mainloop != MainloopKind::routed && (e.split_k & split) != 0 &&
          !has_cost(costs, {e.m, e.n, split}))
        return false;
  return true;
}

/// Returns an entry for each kernel except the routed ones.
std::span<const KernelCost> kernel_costs();

}  // namespace nvfp4::cuda
