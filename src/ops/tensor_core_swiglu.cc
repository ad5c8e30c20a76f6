#include "nvfp4/tensor_core_swiglu.h"

#include "ops/tensor_core_product.h"

namespace nvfp4 {
namespace {

/// Starts and ends of groups, or a routing, or that there is but one group.
struct Groups {
  bool given = false;
  std::span<const std::int32_t> starts = {}, ends = {};
  const Routing* routing = nullptr;
};

/// Where the result goes, as the kernel is told it.
void set_result(const char* op, const MatrixSpan& y, std::int64_t rows, std::int64_t cols,
                FragmentGemmJob& job) {
  require_product(op, y, rows, cols, job.w->device());
  job.out = y;
}

struct QuantizedResult {
  QuantizedSpan span;
  const QuantizeOptions* options;
};
void set_result(const char* op, const QuantizedResult& result, std::int64_t rows, std::int64_t cols,
                FragmentGemmJob& job) {
  const QuantizeOptions& o = *result.options;
  const Device device = job.w->device();
  require<ValueError>(o.quantizer == Quantizer::max && o.axis == BlockAxis::rows &&
                          o.weights.empty() && !is_given(o.hessian) && !o.check_finite,
                      "{}: this product quantizes along rows with the quantizer max only, without "
                      "weights, hessian and check_finite",
                      op);
  require<ValueError>(!o.global.empty() || rows == 0,
                      "{}: quantize.global is empty, must be given: see swiglu_quantize_into for "
                      "one that is measured",
                      op);
  require<ShapeError>(o.block == kBlock, "{}: quantize.block = {}, must be 16", op, o.block);
  require_output(op, result.span, quantized_shape(op, rows, cols, device, o), device);
  job.quantized = result.span;
  job.global = o.global;
  job.out = MatrixSpan(nullptr, DType::f32, rows, cols, cols, device);
}

template <class X, class Result>
void swiglu_gemm(const char* op, const X& x, const FragmentWeights& w, const Groups& groups,
                 const Result& result, const TensorCoreSwigluOptions& options) {
  const GemmInput in = gemm_input(op, x, w, options.gemm);
  require_depth(op, in, w);
  require<ValueError>(w.gate_up().has_value(),
                      "{}: w is not packed as gate and up: see pack_gate_up_fragments", op);
  require<ValueError>(options.limit > 0, "{}: limit = {}, must be positive", op, options.limit);
  FragmentGemmJob job{.w = &w, .options = options.gemm, .limit = options.limit};
  std::int64_t rows = in.view.rows;
  if (groups.routing != nullptr) {
    require_routed(op, in, *groups.routing, options.gemm);
    job.routing = groups.routing;
    rows = groups.routing->rows * groups.routing->top_k;
  } else if (groups.given) {
    require_groups(op, w, groups.starts, groups.ends);
    job.starts = groups.starts.empty() ? nullptr : groups.starts.data();
    job.ends = groups.ends.data();
  } else {
    require_one_group(op, w);
  }
  require_factors(op, w, options.gemm);
  set_result(op, result, rows, w.rows() / 2, job);
  run_product(x, in, job);
}

constexpr const char *kStore = "swiglu_gemm", *kQuantize = "swiglu_gemm_quantize",
                     *kGroupedStore = "grouped_swiglu_gemm",
                     *kGroupedQuantize = "grouped_swiglu_gemm_quantize",
                     *kRoutedStore = "routed_swiglu_gemm",
                     *kRoutedQuantize = "routed_swiglu_gemm_quantize";

}  // namespace

void swiglu_gemm_into(MatrixView x, const FragmentWeights& gate_up, MatrixSpan y,
                      const TensorCoreSwigluOptions& options) {
  swiglu_gemm(kStore, x, gate_up, {}, y, options);
}
void swiglu_gemm_into(QuantizedView x, const FragmentWeights& gate_up, MatrixSpan y,
                      const TensorCoreSwigluOptions& options) {
  swiglu_gemm(kStore, x, gate_up, {}, y, options);
}
void swiglu_gemm_quantize_into(MatrixView x, const FragmentWeights& gate_up, QuantizedSpan out,
                               const QuantizeOptions& quantize,
                               const TensorCoreSwigluOptions& options) {
  swiglu_gemm(kQuantize, x, gate_up, {}, QuantizedResult{out, &quantize}, options);
}
void swiglu_gemm_quantize_into(QuantizedView x, const FragmentWeights& gate_up, QuantizedSpan out,
                               const QuantizeOptions& quantize,
                               const TensorCoreSwigluOptions& options) {
  swiglu_gemm(kQuantize, x, gate_up, {}, QuantizedResult{out, &quantize}, options);
}

void grouped_swiglu_gemm_into(MatrixView x, const FragmentWeights& gate_up,
                              std::span<const std::int32_t> starts,
                              std::span<const std::int32_t> ends, MatrixSpan y,
                              const TensorCoreSwigluOptions& options) {
  swiglu_gemm(kGroupedStore, x, gate_up, {true, starts, ends}, y, options);
}
void grouped_swiglu_gemm_into(QuantizedView x, const FragmentWeights& gate_up,
                              std::span<const std::int32_t> starts,
                              std::span<const std::int32_t> ends, MatrixSpan y,
                              const TensorCoreSwigluOptions& options) {
  swiglu_gemm(kGroupedStore, x, gate_up, {true, starts, ends}, y, options);
}
void grouped_swiglu_gemm_quantize_into(MatrixView x, const FragmentWeights& gate_up,
                                       std::span<const std::int32_t> starts,
                                       std::span<const std::int32_t> ends, QuantizedSpan out,
                                       const QuantizeOptions& quantize,
                                       const TensorCoreSwigluOptions& options) {
  swiglu_gemm(kGroupedQuantize, x, gate_up, {true, starts, ends}, QuantizedResult{out, &quantize},
              options);
}
void grouped_swiglu_gemm_quantize_into(QuantizedView x, const FragmentWeights& gate_up,
                                       std::span<const std::int32_t> starts,
                                       std::span<const std::int32_t> ends, QuantizedSpan out,
                                       const QuantizeOptions& quantize,
                                       const TensorCoreSwigluOptions& options) {
  swiglu_gemm(kGroupedQuantize, x, gate_up, {true, starts, ends}, QuantizedResult{out, &quantize},
              options);
}

void routed_swiglu_gemm_into(MatrixView x, const FragmentWeights& gate_up, const Routing& routing,
                             MatrixSpan y, const TensorCoreSwigluOptions& options) {
  swiglu_gemm(kRoutedStore, x, gate_up, {.routing = &routing}, y, options);
}
void routed_swiglu_gemm_into(QuantizedView x, const FragmentWeights& gate_up,
                             const Routing& routing, MatrixSpan y,
                             const TensorCoreSwigluOptions& options) {
  swiglu_gemm(kRoutedStore, x, gate_up, {.routing = &routing}, y, options);
}
void routed_swiglu_gemm_quantize_into(MatrixView x, const FragmentWeights& gate_up,
                                      const Routing& routing, QuantizedSpan out,
                                      const QuantizeOptions& quantize,
                                      const TensorCoreSwigluOptions& options) {
  swiglu_gemm(kRoutedQuantize, x, gate_up, {.routing = &routing}, QuantizedResult{out, &quantize},
              options);
}
void routed_swiglu_gemm_quantize_into(QuantizedView x, const FragmentWeights& gate_up,
                                      const Routing& routing, QuantizedSpan out,
                                      const QuantizeOptions& quantize,
                                      const TensorCoreSwigluOptions& options) {
  swiglu_gemm(kRoutedQuantize, x, gate_up, {.routing = &routing}, QuantizedResult{out, &quantize},
              options);
}

}  // namespace nvfp4
