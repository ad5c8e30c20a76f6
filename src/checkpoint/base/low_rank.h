#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nvfp4 {

/// The product B · A that an adapter adds to a weight [rows, cols].
struct LowRank {
  std::int64_t rank = 0, cols = 0;
  std::vector<float> a;  ///< [rank, cols]
  std::vector<float> b;  ///< [rows, rank], scaled

  /// Adds elements [first, first + out.size()) of the product to `out`, in FP32. The sum over the
  /// rank comes first, in its order. The result therefore does not depend on the division of a
  /// weight.
  void add_to(std::int64_t first, std::span<float> out) const;
};

}  // namespace nvfp4
