#include "checkpoint/work/method_rows.h"

#include <algorithm>
#include <utility>

#include "backends/backend.h"
#include "core/printable.h"
#include "core/require.h"
#include "nvfp4/matrix.h"
#include "ops/factor_gram.h"
#include "quantizers/gptq.h"

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

void quantize_rows(const MatrixView& x, const QuantizedSpan& out, const RowsMethod& method,
                   const RowsRoom& room, Stream stream) {
  QuantizeOptions options;
  options.quantizer = method.quantizer;
  options.global = {&method.global, 1};
  options.backend = method.backend;
  options.stream = stream;
  if (method.gram != nullptr)  // The result must not be worse than mse.
    quantize_into(x, {out.shape, room.mse_codes, room.mse_scales, out.global_scale, out.device},
                  options);
  options.weights = room.channels;
  quantize_into(x, out, options);
  if (method.gram == nullptr) return;
  if (x.device.type == DeviceType::cpu) {
    const GptqJob job{.gram = &method.gram->factor,
                      .x = static_cast<const float*>(x.data),
                      .rows = x.rows,
                      .divisor = method.global.divisor,
                      .sweeps = method.sweeps,
                      .mse_codes = room.mse_codes,
                      .mse_scales = room.mse_scales,
                      .codes = out.codes,
                      .scales = out.scales,
                      .chosen = room.chosen,
                      .errors = room.errors};
    return find_backend(method.backend).gptq(job, 0, x.rows);
  }
  device_backend(x.device).gptq({.gram = *room.gram,
                                 .x = x,
                                 .divisor = method.global.divisor,
                                 .sweeps = method.sweeps,
                                 .mse_codes = room.mse_codes,
                                 .mse_scales = room.mse_scales,
                                 .codes = out.codes,
                                 .scales = out.scales,
                                 .chosen = room.chosen,
                                 .errors = room.errors,
                                 .workspace = room.workspace,
                                 .stream = stream});
}

void add_candidates(std::span<const std::uint8_t> chosen, const double* errors,
                    const GramFactor& factor, const GlobalScale& global, Outcome& to) {
  to.factored = factor.by;
  const double divisor = static_cast<double>(global.divisor);
  const double unit = factor.mean / (divisor * divisor);
  for (const std::uint8_t c : chosen) {
    to.add_chosen({.candidate = c, .rows = 1});
    // Rounding can make an error of zero slightly negative.
    to.output.mse += unit * std::max(errors[static_cast<int>(GptqCandidate::mse)], 0.0);
    to.output.kept += unit * std::max(errors[c], 0.0);
    errors += kGptqCandidates;
  }
}

}  // namespace nvfp4::checkpoint
