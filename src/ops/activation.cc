#include "nvfp4/activation.h"

#include <bit>
#include <cmath>

#include "backends/device_backend.h"
#include "backends/host/host.h"
#include "core/require.h"
#include "ops/options.h"
#include "ops/rows.h"
#include "quantizers/row_math.h"

namespace nvfp4 {
namespace {

/// Returns the options of an activation, with max as the default quantizer. Throws ValueError for
/// options that fused operations do not have.
QuantizeOptions row_options(const char* op, QuantizeOptions options) {
  require<ValueError>(options.axis == BlockAxis::rows, "{}: axis = columns, must be rows", op);
  require<ValueError>(options.weights.empty() && !is_given(options.hessian),
                      "{}: weights and hessian do not apply, must be empty", op);
  require<ValueError>(!options.check_finite, "{}: check_finite does not apply, must be false", op);
  options.quantizer = options.quantizer.value_or(Quantizer::max);
  return options;
}

void require_dtype(const char* op, const char* argument, const MatrixView& m, DType dtype) {
  require<ValueError>(m.dtype == dtype, "{}: {}.dtype = {}, must be {}", op, argument,
                      dtype_name(m.dtype), dtype_name(dtype));
}

void require_same_shape(const char* op, const char* argument, const MatrixView& m,
                        std::int64_t rows, std::int64_t cols, Device device) {
  require_matrix(op, argument, m);
  require_on(op, argument, m.device, device);
  require<ShapeError>(m.rows == rows && m.cols == cols,
                      "{}: {} has shape [{}, {}], must be [{}, {}]", op, argument, m.rows, m.cols,
                      rows, cols);
}

void require_residual(const char* op, const RmsNormOptions& norm, const MatrixView& x) {
  const bool given = is_given(norm.residual);
  require<ValueError>(given == is_given(norm.residual_out),
                      "{}: residual and residual_out belong together, {} is missing", op,
                      given ? "residual_out" : "residual");
  if (!given) return;
  require_same_shape(op, "residual", norm.residual, x.rows, x.cols, x.device);
  require_same_shape(op, "residual_out", norm.residual_out, x.rows, x.cols, x.device);
}

void require_norm(const char* op, const RmsNormOptions& norm, std::span<const float> weight,
                  std::int64_t rows, std::int64_t cols, Device device) {
  require<ValueError>(norm.eps >= 0 && std::isfinite(norm.eps), ErrorCode::not_finite,
                      "{}: eps = {}, must be finite and not negative", op, norm.eps);
  require<ShapeError>(static_cast<std::int64_t>(weight.size()) == cols,
                      "{}: weight has {} values, must have {}", op, weight.size(), cols);
  require_array(op, "weight", weight.data(), cols);
  require_aligned(op, "weight", weight.data(), device);
  if (norm.rstd != nullptr) require_array(op, "rstd", norm.rstd, rows);
}

RowJob plain_job(const MatrixView& x) { return {.x = x, .cols = x.cols}; }

RowJob norm_job(const char* op, const MatrixView& x, std::span<const float> weight,
                const RmsNormOptions& norm) {
  require_matrix(op, "x", x);
  require_norm(op, norm, weight, x.rows, x.cols, x.device);
  require_residual(op, norm, x);
  return {
      .source = RowSource::rms_norm, .x = x, .cols = x.cols, .weight = weight.data(), .norm = norm};
}

RowJob mix_job(const char* op, const MatrixView& streams, const MatrixView& mix) {
  require_matrix(op, "streams", streams);
  require_matrix(op, "mix", mix);
  require_on(op, "mix", mix.device, streams.device);
  require_dtype(op, "mix", mix, DType::f32);
  require<ShapeError>(mix.cols >= 1 && mix.cols <= kMostStreams,
                      "{}: mix.cols = {}, the number of streams must be 1 to {}", op, mix.cols,
                      kMostStreams);
  require<ShapeError>(mix.rows == streams.rows, "{}: mix.rows = {}, must be streams.rows = {}", op,
                      mix.rows, streams.rows);
  require<ShapeError>(streams.cols % mix.cols == 0,
                      "{}: streams.cols = {}, must be a multiple of the {} streams", op,
                      streams.cols, mix.cols);
  return {.source = RowSource::mix,
          .x = streams,
          .cols = streams.cols / mix.cols,
          .mix = mix,
          .streams = static_cast<int>(mix.cols)};
}

RowJob swiglu_job(const char* op, const MatrixView& gate_up, const SwigluOptions& swiglu) {
  require_matrix(op, "gate_up", gate_up);
  require<ShapeError>(gate_up.cols % 2 == 0, "{}: gate_up.cols = {}, must be even", op,
                      gate_up.cols);
  const std::int64_t cols = gate_up.cols / 2;
  require<ValueError>(
      swiglu.interleave >= 0 &&
          (swiglu.interleave == 0 || std::has_single_bit(static_cast<unsigned>(swiglu.interleave))),
      "{}: interleave = {}, must be 0 or a power of two", op, swiglu.interleave);
  require<ShapeError>(swiglu.interleave == 0 || cols % swiglu.interleave == 0,
                      "{}: interleave = {}, must divide gate_up.cols / 2 = {}", op,
                      swiglu.interleave, cols);
  require<ValueError>(swiglu.limit > 0, "{}: limit = {}, must be positive", op, swiglu.limit);
  return {.source = RowSource::swiglu, .x = gate_up, .cols = cols, .swiglu = swiglu};
}

void store(const char* op, const RowJob& job, const MatrixSpan& y, const QuantizeOptions& options) {
  require<ShapeError>(job.cols % kBlock == 0, ErrorCode::partial_block,
                      "{}: y.cols = {}, must be a multiple of {}", op, job.cols, kBlock);
  require_same_shape(op, "y", y, job.x.rows, job.cols, job.x.device);
  if (job.x.device.type == DeviceType::cuda)
    return device_backend(job.x.device).store_rows(job, y, options.stream);
  store_rows(find_backend(options.backend), job, y);
}

void quantize(const char* op, RowQuantizeJob job, const QuantizeOptions& given) {
  const MatrixView& x = job.rows.x;
  const QuantizeOptions options = row_options(op, given);
  require_output(op, job.out, quantized_shape(op, x.rows, job.rows.cols, x.device, options),
                 x.device);
  job.quantizer = *options.quantizer;
  job.global = options.global;
  job.stream = options.stream;
  if (x.device.type == DeviceType::cuda) return device_backend(x.device).quantize_rows(job);
  quantize_rows(find_backend(options.backend), job);
}

void require_stride(const char* op, const char* argument, std::int64_t stride,
                    const Routing& routing) {
  require<ShapeError>(stride >= routing.top_k, "{}: {} = {}, must be at least top_k = {}", op,
                      argument, stride, routing.top_k);
}

void require_staged(const char* op, const Routing& routing, const StagedRouting& staged) {
  require_stride(op, "staged.id_stride", staged.id_stride, routing);
  require_stride(op, "staged.weight_stride", staged.weight_stride, routing);
  const std::int64_t n = routing.rows > 0 ? routing.top_k : 0;
  require_array(op, "staged.ids", staged.ids, n);
  require_array(op, "staged.weights", staged.weights, n);
}

}  // namespace

void require_ids(const char* op, const Routing& routing, std::int64_t rows) {
  require<ShapeError>(routing.rows == rows, "{}: routing.rows = {}, must be hidden.rows = {}", op,
                      routing.rows, rows);
  require<ShapeError>(routing.top_k >= 0, "{}: routing.top_k = {}, must not be negative", op,
                      routing.top_k);
  require_stride(op, "routing.id_stride", routing.id_stride, routing);
  const std::int64_t n = rows > 0 ? routing.top_k : 0;
  const auto id_bytes = std::size_t{1} << static_cast<int>(routing.id_type) / 2;
  require_memory(op, "routing.ids", routing.ids, n, id_bytes);
}

void require_routing(const char* op, const Routing& routing, std::int64_t rows) {
  require_ids(op, routing, rows);
  require_stride(op, "routing.weight_stride", routing.weight_stride, routing);
  require_array(op, "routing.weights", routing.weights, rows > 0 ? routing.top_k : 0);
}

void require_experts(const char* op, const Routing& routing, std::int64_t experts) {
  for (std::int64_t t = 0; t < routing.rows; ++t)
    for (std::int64_t k = 0; k < routing.top_k; ++k) {
      const std::int64_t id = host::id_at(routing, t, k);
      require<ValueError>(id >= 0 && id < experts,
                          "{}: routing.ids of token {}, choice {} = {}, must be in 0 … {}", op, t,
                          k, id, experts - 1);
    }
}

void rms_norm_into(MatrixView x, std::span<const float> weight, MatrixSpan y,
                   const RmsNormOptions& norm, const QuantizeOptions& options) {
  store("rms_norm", norm_job("rms_norm", x, weight, norm), y, options);
}

void rms_norm_quantize_into(MatrixView x, std::span<const float> weight, QuantizedSpan out,
                            const RmsNormOptions& norm, const QuantizeOptions& options) {
  constexpr const char* kOp = "rms_norm_quantize";
  quantize(kOp, {.rows = norm_job(kOp, x, weight, norm), .out = out}, options);
}

void mix_streams_into(MatrixView streams, MatrixView mix, MatrixSpan y,
                      const QuantizeOptions& options) {
  store("mix_streams", mix_job("mix_streams", streams, mix), y, options);
}

void mix_rms_norm_quantize_into(MatrixView streams, MatrixView mix, std::span<const float> weight,
                                QuantizedSpan out, const RmsNormOptions& norm,
                                const QuantizeOptions& options) {
  constexpr const char* kOp = "mix_rms_norm_quantize";
  RowJob job = mix_job(kOp, streams, mix);
  require<ValueError>(!is_given(norm.residual) && !is_given(norm.residual_out),
                      "{}: norm.residual does not apply, must be empty", kOp);
  require_norm(kOp, norm, weight, streams.rows, job.cols, streams.device);
  job.source = RowSource::mix_rms_norm;
  job.weight = weight.data();
  job.norm = norm;
  quantize(kOp, {.rows = job, .out = out}, options);
}

void swiglu_into(MatrixView gate_up, MatrixSpan y, const SwigluOptions& swiglu,
                 const QuantizeOptions& options) {
  store("swiglu", swiglu_job("swiglu", gate_up, swiglu), y, options);
}

void swiglu_quantize_into(MatrixView gate_up, QuantizedSpan out, const SwigluOptions& swiglu,
                          const QuantizeOptions& options) {
  constexpr const char* kOp = "swiglu_quantize";
  quantize(kOp, {.rows = swiglu_job(kOp, gate_up, swiglu), .out = out}, options);
}

void quantize_grouped_into(MatrixView x, std::span<const std::int32_t> starts,
                           std::span<const std::int32_t> ends, QuantizedSpan out,
                           const QuantizeOptions& options) {
  constexpr const char* kOp = "quantize_grouped";
  require_matrix(kOp, "x", x);
  const auto groups = static_cast<std::int64_t>(starts.size());
  require<ShapeError>(starts.size() == ends.size(), "{}: {} starts and {} ends, must be as many",
                      kOp, starts.size(), ends.size());
  require<ShapeError>(groups > 0, "{}: no groups given, must be at least one", kOp);
  require_array(kOp, "starts", starts.data(), groups);
  require_array(kOp, "ends", ends.data(), groups);
  quantize(kOp, {.rows = plain_job(x), .out = out, .groups = {starts.data(), ends.data(), groups}},
           options);
}

void stage_moe_into(MatrixView hidden, const Routing& routing, QuantizedSpan out,
                    const StagedRouting& staged, const QuantizeOptions& options) {
  constexpr const char* kOp = "stage_moe";
  require_matrix(kOp, "hidden", hidden);
  require_routing(kOp, routing, hidden.rows);
  require_staged(kOp, routing, staged);
  require<ValueError>(options.scope == GlobalScope::vector || !options.global.empty(),
                      "{}: scope = tensor, its global scale must be given", kOp);
  quantize(kOp, {.rows = plain_job(hidden), .out = out, .routing = routing, .staged = staged},
           options);
}

QuantizedActivation quantize_activation(MatrixView x, QuantizeOptions options) {
  return QuantizedActivation(quantize(x, row_options("quantize_activation", options)));
}

QuantizedActivation rms_norm_quantize(MatrixView x, std::span<const float> weight,
                                      const RmsNormOptions& norm, QuantizeOptions options) {
  constexpr const char* kOp = "rms_norm_quantize";
  options = row_options(kOp, options);
  require_matrix(kOp, "x", x);
  QuantizedMatrix out(quantized_shape(kOp, x.rows, x.cols, x.device, options), x.device);
  Matrix rstd(DType::f32, x.rows, 1, x.device);
  RmsNormOptions own = norm;
  own.rstd = rstd.data<float>();
  rms_norm_quantize_into(x, weight, out.span(), own, options);
  if (norm.rstd != nullptr)
    copy(rstd.view(), MatrixSpan(norm.rstd, DType::f32, x.rows, 1, 1, x.device), options.stream);
  return QuantizedActivation(std::move(out), std::move(rstd));
}

QuantizedActivation swiglu_quantize(MatrixView gate_up, const SwigluOptions& swiglu,
                                    QuantizeOptions options) {
  constexpr const char* kOp = "swiglu_quantize";
  options = row_options(kOp, options);
  const std::int64_t cols = swiglu_job(kOp, gate_up, swiglu).cols;
  QuantizedMatrix out(quantized_shape(kOp, gate_up.rows, cols, gate_up.device, options),
                      gate_up.device);
  swiglu_quantize_into(gate_up, out.span(), swiglu, options);
  return QuantizedActivation(std::move(out));
}

}  // namespace nvfp4
