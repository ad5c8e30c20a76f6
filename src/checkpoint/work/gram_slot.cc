#include "checkpoint/work/gram_slot.h"

#include <algorithm>
#include <utility>

#include "core/printable.h"
#include "core/require.h"
#include "nvfp4/matrix.h"
#include "ops/factor_gram.h"

namespace nvfp4::checkpoint {
namespace {

/// The damping, relative to the diagonal's mean. With descent, no smaller value is better.
constexpr double kDamping = 0.05;

/// Adds the layer's mean over all tokens. Only one expert's matrix is in memory at a time.
void add_layer(const Statistics& statistics, const GramSlot& slot, std::vector<double>& triangle) {
  std::call_once(slot.layer->once, [&] {
    double tokens = 0;
    std::vector<double>& mean = slot.layer->mean;
    mean.resize(triangle.size());
    for (const InputStatistics* expert : statistics.experts_of(*slot.statistics)) {
      const std::vector<double> h = statistics.triangle(*expert);
      std::ranges::transform(mean, h, mean.begin(), std::plus());
      tokens += expert->count;
    }
    for (double& v : mean) v /= tokens;
  });
  const double tokens = statistics.layer_tokens(*slot.statistics);
  std::ranges::transform(triangle, slot.layer->mean, triangle.begin(),
                         [&](double own, double mean) { return own + tokens * mean; });
}

}  // namespace

void fill_gram_slot(const Statistics& statistics, const std::string& backend,
                    const InvertLower& library, GramSlot& slot) {
  std::vector<double> triangle = statistics.triangle(*slot.statistics);
  if (std::ranges::all_of(triangle, [](double v) { return v == 0; })) return;
  if (slot.layer) add_layer(statistics, slot, triangle);
  try {
    slot.factor =
        factor_gram(slot.statistics->depth, std::move(triangle), kDamping, backend, library);
  } catch (const ValueError& e) {
    throw FormatError(
        fmt::format("{}: {}: {}", statistics.path().string(), printable(slot.module), e.what()),
        ErrorCode::statistics);
  }
}

std::uint64_t gram_slot_bytes(std::int64_t depth) {
  return static_cast<std::uint64_t>(2 * depth * depth * dtype_size(DType::f32));
}

}  // namespace nvfp4::checkpoint
