#include "checkpoint/statistics/input_weights.h"

#include <algorithm>
#include <functional>

namespace nvfp4::checkpoint {

double InputWeights::tokens_of_layer(const InputStatistics& input) const {
  return completes_ && input.gram ? statistics_.layer_tokens(input) : 0;
}

double InputWeights::share(const InputStatistics& input) const {
  const double more = tokens_of_layer(input);
  return more == 0 ? 1 : input.count / (input.count + more);
}

const std::vector<double>& InputWeights::of_layer(const InputStatistics& expert) {
  const std::lock_guard lock(mutex_);
  const auto [it, fresh] = layers_.try_emplace(expert.experts);
  std::vector<double>& mean = it->second;
  if (!fresh) return mean;
  double tokens = 0;
  mean.resize(static_cast<std::size_t>(expert.depth));
  for (const InputStatistics* other : statistics_.experts_of(expert)) {
    const std::vector<double> squares = statistics_.squares(*other);
    std::ranges::transform(mean, squares, mean.begin(), std::plus());
    tokens += other->count;
  }
  for (double& v : mean) v /= tokens;
  return mean;
}

std::vector<double> InputWeights::of(const InputStatistics& input) {
  std::vector<double> squares = statistics_.squares(input);
  const double more = tokens_of_layer(input), part = share(input);
  // An input of zeros is not completed.
  if (more == 0 || std::ranges::all_of(squares, [](double v) { return v == 0; })) return squares;
  std::ranges::transform(squares, of_layer(input), squares.begin(),
                         [&](double own, double mean) { return part * (own + more * mean); });
  return squares;
}

}  // namespace nvfp4::checkpoint
