#include "checkpoint/work/method_rows.h"

#include <algorithm>

#include "backends/backend.h"
#include "quantizers/gptq.h"

namespace nvfp4::checkpoint {

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
