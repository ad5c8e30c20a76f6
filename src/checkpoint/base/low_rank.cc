#include "checkpoint/base/low_rank.h"

#include <algorithm>

namespace nvfp4 {

void LowRank::add_to(std::int64_t first, std::span<float> out) const {
  constexpr std::int64_t kStrip = 1024;
  float sums[kStrip];
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(out.size());) {
    const std::int64_t row = (first + at) / cols, col = (first + at) % cols,
                       n = std::min(
                           {kStrip, cols - col, static_cast<std::int64_t>(out.size()) - at});
    std::fill_n(sums, n, 0.0f);
    for (std::int64_t k = 0; k < rank; ++k) {
      const float factor = b[static_cast<std::size_t>(row * rank + k)];
      const float* const from = a.data() + k * cols + col;
      for (std::int64_t i = 0; i < n; ++i) sums[i] += factor * from[i];
    }
    float* const to = out.data() + at;
    for (std::int64_t i = 0; i < n; ++i) to[i] += sums[i];
    at += n;
  }
}

}  // namespace nvfp4
