#include "checkpoint/source/share_out.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace nvfp4::checkpoint {

std::vector<int> share_out(const std::vector<std::uint64_t>& sizes, int ranks) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) { return sizes[i]; });
  std::vector<std::uint64_t> given(static_cast<std::size_t>(ranks));
  std::vector<int> rank_of(sizes.size());
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(given);
    *least += sizes[i];
    rank_of[i] = static_cast<int>(least - given.begin());
  }
  return rank_of;
}

}  // namespace nvfp4::checkpoint
