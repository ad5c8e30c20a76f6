#include "checkpoint/statistics/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "checkpoint/gguf/format.h"
#include "checkpoint/io/posix_file.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

std::vector<float> Statistics::weights(const InputStatistics& of) const {
  const std::vector<double> squares = diagonal(of);
  double largest = 0;
  for (const double s : squares) {
    require<FormatError>(std::isfinite(s) && s >= 0,
                         "{}: a sum of squares of {}, must be finite and not negative",
                         path().string(), s);
    largest = std::max(largest, s);
  }
  if (largest == 0) return {};
  const int exponent = std::ilogb(largest);
  std::vector<float> weights(squares.size());
  std::ranges::transform(squares, weights.begin(), [exponent](double s) {
    return static_cast<float>(std::ldexp(s, -exponent));
  });
  return weights;
}

double Statistics::mean_square(const InputStatistics& of) const {
  double sum = 0;
  const std::vector<double> squares = diagonal(of);
  for (const double s : squares) {
    require<FormatError>(std::isfinite(s) && s >= 0,
                         "{}: a sum of squares of {}, must be finite and not negative",
                         path().string(), s);
    sum += s;
  }
  return squares.empty() ? 0 : sum / static_cast<double>(squares.size());
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
