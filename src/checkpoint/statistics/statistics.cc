#include "checkpoint/statistics/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>

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

}  // namespace nvfp4::checkpoint
