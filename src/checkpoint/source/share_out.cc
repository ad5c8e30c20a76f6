#include "checkpoint/source/share_out.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace nvfp4::checkpoint {

std::vector<int> share_out(const std::vector<std::uint64_t>& sizes, int ranks) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) { return sizes[i]; });
  using Given = std::pair<std::uint64_t, int>;  // bytes, rank
  std::priority_queue<Given, std::vector<Given>, std::greater<>> given;
  for (int rank = 0; rank < ranks; ++rank) given.emplace(0, rank);
  std::vector<int> rank_of(sizes.size());
  for (const std::size_t i : order) {
    const auto [bytes, rank] = given.top();
    given.pop();
    given.emplace(bytes + sizes[i], rank);
    rank_of[i] = rank;
  }
  return rank_of;
}

}  // namespace nvfp4::checkpoint
