#include "checkpoint/choose/budget.h"

#include <algorithm>
#include <numeric>

namespace nvfp4::checkpoint {
namespace {

/// Numbers of the alternatives on the lower convex hull, fewest bytes first.
std::vector<std::size_t> hull_of(const Alternatives& all) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return all[a].bytes != all[b].bytes ? all[a].bytes < all[b].bytes : all[a].error < all[b].error;
  });
  const auto gain = [&](std::size_t from, std::size_t to) {
    return (all[from].error - all[to].error) / static_cast<double>(all[to].bytes - all[from].bytes);
  };
  std::vector<std::size_t> hull;
  for (const std::size_t i : order) {
    if (!hull.empty() &&
        (all[i].bytes == all[hull.back()].bytes || !(all[i].error < all[hull.back()].error)))
      continue;
    while (hull.size() >= 2 && gain(hull.back(), i) >= gain(hull[hull.size() - 2], hull.back()))
      hull.pop_back();
    hull.push_back(i);
  }
  return hull;
}

struct Step {
  std::size_t layer, to;  ///< from the one before on its hull
  std::uint64_t bytes;
  double gain;
  double rate() const { return gain / static_cast<double>(bytes); }
};

}  // namespace

std::uint64_t least_bytes(std::span<const Alternatives> layers) {
  std::uint64_t sum = 0;
  for (const Alternatives& all : layers)
    sum += std::ranges::min_element(all, {}, &Alternative::bytes)->bytes;
  return sum;
}

Allocation allocate(std::span<const Alternatives> layers, std::uint64_t budget) {
  Allocation result;
  std::vector<Step> steps;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const Alternatives& all = layers[l];
    const std::vector<std::size_t> hull = hull_of(all);
    result.chosen.push_back(hull[0]);
    result.bytes += all[hull[0]].bytes;
    result.error += all[hull[0]].error;
    for (std::size_t i = 1; i < hull.size(); ++i)
      steps.push_back({l, hull[i], all[hull[i]].bytes - all[hull[i - 1]].bytes,
                       all[hull[i - 1]].error - all[hull[i]].error});
  }
  std::ranges::stable_sort(steps, [](const Step& a, const Step& b) { return a.rate() > b.rate(); });
  std::vector<bool> ended(layers.size());
  bool bounded = false;
  result.bound = result.error;
  for (const Step& step : steps) {
    const std::uint64_t left = budget - result.bytes;
    const bool fits = step.bytes <= left;
    if (!bounded) result.bound -= fits ? step.gain : step.rate() * static_cast<double>(left);
    bounded |= !fits;
    if (!fits || ended[step.layer]) {
      ended[step.layer] = true;
      continue;
    }
    result.chosen[step.layer] = step.to;
    result.bytes += step.bytes;
  }
  result.error = 0;  // without what subtracting gains would leave
  for (std::size_t l = 0; l < layers.size(); ++l) result.error += layers[l][result.chosen[l]].error;
  return result;
}

}  // namespace nvfp4::checkpoint
