#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "core/parallel_for.h"
#include "report/parts.h"

namespace nvfp4::report {
namespace {

using checkpoint::InputStatistics, checkpoint::Statistics, checkpoint::TensorPair;

/// Returns Σ h_k x_k. Independent sums allow vectorization; their order is fixed.
double dot(const double* h, std::span<const float> x) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> sums{};
  std::size_t k = 0;
  for (; k + kLanes <= x.size(); k += kLanes)
    for (std::size_t l = 0; l < kLanes; ++l) sums[l] += h[k + l] * static_cast<double>(x[k + l]);
  for (; k < x.size(); ++k) sums[k % kLanes] += h[k] * static_cast<double>(x[k]);
  double total = 0;
  for (const double s : sums) total += s;
  return total;
}

/// XᵀX as the upper triangle, or as its diagonal.
struct Gram {
  std::vector<double> values;
  std::int64_t depth = 0;
  bool whole = false;

  /// Returns Σ x XᵀX xᵀ over rows x. The sum does not depend on threads.
  double energy(std::span<const float> rows) const {
    const auto size = static_cast<std::size_t>(depth);
    std::vector<double> parts(size);
    parallel_for(depth, [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      const double* const h = values.data() + (whole ? i * depth - i * (i - 1) / 2 : i);
      for (std::size_t r = 0; r < rows.size(); r += size) {
        const auto x = static_cast<double>(rows[r + at]);
        const double others = whole ? 2 * dot(h + 1, rows.subspan(r + at + 1, size - at - 1)) : 0.0;
        parts[at] += x * (h[0] * x + others);
      }
    });
    double total = 0;
    for (const double part : parts) total += part;
    return std::max(total, 0.0);  // rounding can make it negative
  }
};

/// Returns the output error of a weight [rows, K]. A large weight is represented by evenly spaced
/// rows.
ErrorSum error_of(const TensorPair& pair, const Gram& gram) {
  constexpr std::int64_t kLeastRows = 32, kMultiplications = std::int64_t{1} << 28;
  const std::int64_t rows = pair.shape[0], cols = pair.shape[1];
  const std::int64_t affordable = kMultiplications / (gram.whole ? cols * cols : cols);
  const std::int64_t step = std::max<std::int64_t>(1, rows / std::max(kLeastRows, affordable));
  const auto size = static_cast<std::size_t>(cols);
  std::vector<float> a, difference, row(size);
  for (std::int64_t r = 0; r < rows; r += step) {
    pair.a.read(r * cols, cols, row);
    a.insert(a.end(), row.begin(), row.end());
    pair.b.read(r * cols, cols, row);
    const auto from = static_cast<std::ptrdiff_t>(a.size() - size);
    std::transform(a.begin() + from, a.end(), row.begin(), std::back_inserter(difference),
                   std::minus());
  }
  return {gram.energy(difference), gram.energy(a), 1};
}

}  // namespace

TensorErrors output_errors(const checkpoint::CheckpointReader& a,
                           const checkpoint::CheckpointReader& b, const Statistics& statistics) {
  constexpr std::string_view kWeight = ".weight";
  TensorErrors errors;
  for (const TensorPair& pair : checkpoint::pair_tensors(a, b).pairs) {
    if (!pair.name.ends_with(kWeight) || pair.shape.size() != 2 || !pair.a.tensor->readable())
      continue;
    const std::string_view name = pair.name;
    const InputStatistics* const s = statistics.find(name.substr(0, name.size() - kWeight.size()));
    if (s == nullptr || s->count == 0 || s->depth != pair.shape[1]) continue;
    const Gram gram{s->gram ? statistics.triangle(*s) : statistics.squares(*s), s->depth, s->gram};
    if (const ErrorSum error = error_of(pair, gram); error.squared_norm > 0)
      errors.emplace(pair.name, error);
  }
  return errors;
}

}  // namespace nvfp4::report
