#include "checkpoint/statistics/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "checkpoint/gguf/format.h"
#include "checkpoint/io/posix_file.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

std::vector<double> Statistics::squares(const InputStatistics& of) const {
  std::vector<double> squares = diagonal(of);
  for (const double s : squares)
    require<FormatError>(std::isfinite(s) && s >= 0, ErrorCode::statistics,
                         "{}: a sum of squares of {}, must be finite and not negative",
                         path().string(), s);
  return squares;
}

std::vector<float> Statistics::weights(const InputStatistics& of) const {
  const std::vector<double> all = squares(of);
  const double largest = all.empty() ? 0 : *std::ranges::max_element(all);
  if (largest == 0) return {};
  const int exponent = std::ilogb(largest);
  std::vector<float> weights(all.size());
  std::ranges::transform(all, weights.begin(), [exponent](double s) {
    return static_cast<float>(std::ldexp(s, -exponent));
  });
  return weights;
}

double Statistics::mean_square(const InputStatistics& of) const {
  const std::vector<double> all = squares(of);
  double sum = 0;
  for (const double s : all) sum += s;
  return all.empty() ? 0 : sum / static_cast<double>(all.size());
}

const std::map<std::string, CacheAmax, std::less<>>& Statistics::caches() const {
  static const std::map<std::string, CacheAmax, std::less<>> none;
  return none;
}

double Statistics::layer_tokens(const InputStatistics& expert) const {
  if (experts_of(expert).size() < 2) return 0;
  return std::max(0.0, kExpertTokens * static_cast<double>(expert.depth) - expert.count);
}

std::shared_ptr<const Statistics> open_statistics(const std::filesystem::path& path,
                                                  const ModelConfig& config) {
  const InputFile file(path);
  std::array<char, gguf::kMagic.size()> start{};
  if (file.bytes() >= start.size()) file.read(0, std::as_writable_bytes(std::span(start)));
  return std::string_view(start.data(), start.size()) == gguf::kMagic ? open_imatrix(path, config)
                                                                      : open_own_statistics(path);
}

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
