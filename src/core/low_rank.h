#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nvfp4 {

/// B · A, what an adapter adds to a weight [rows, cols].
struct LowRank {
  std::int64_t rank = 0, cols = 0;
  std::vector<float> a;  ///< [rank, cols]
  std::vector<float> b;  ///< [rows, rank], scaled

  /// Adds elements [first, first + out.size()) of the product, in FP32: the sum over the rank in
  /// its order, then to `out`, so that it does not matter how a weight is divided.
  void add_to(std::int64_t first, std::span<float> out) const;
};

}  // namespace nvfp4
