#include "nvfp4/tensor_core_gemm.h"

#include "backends/cuda/gemm/sm90/kernels.h"
#include "ops/tensor_core_product.h"

namespace nvfp4 {
namespace {

/// What all products of this file ask of their arguments.
void require_operands(const char* op, const FragmentWeights& w, const MatrixSpan& out,
                      std::int64_t rows, std::int64_t cols, const TensorCoreGemmOptions& options) {
  require<ValueError>(!w.gate_up(),
                      "{}: the rows of w are those of gate and up, packed for SwiGLU: see "
                      "swiglu_gemm_into",
                      op);
  require_product(op, out, rows, cols, w.device());
  require_factors(op, w, options);
}

template <class X>
void gemm_any(const X& x, const FragmentWeights& w, const MatrixSpan& out,
              const TensorCoreGemmOptions& options) {
  constexpr const char* kOp = "gemm";
  const GemmInput in = gemm_input(kOp, x, w, options);
  require_one_group(kOp, w);
  require_depth(kOp, in, w);
  require_operands(kOp, w, out, in.view.rows, w.rows(), options);
  run_product(x, in, {.w = &w, .out = out, .options = options});
}

template <class X>
void grouped_any(const X& x, const FragmentWeights& w, std::span<const std::int32_t> starts,
                 std::span<const std::int32_t> ends, const MatrixSpan& out,
                 const TensorCoreGemmOptions& options) {
  constexpr const char* kOp = "grouped_gemm";
  const GemmInput in = gemm_input(kOp, x, w, options);
  require_depth(kOp, in, w);
  require_groups(kOp, w, starts, ends);
  require_operands(kOp, w, out, in.view.rows, w.rows(), options);
  run_product(x, in,
              {.w = &w,
               .out = out,
               .starts = starts.empty() ? nullptr : starts.data(),
               .ends = ends.data(),
               .options = options});
}

template <class X>
void routed_any(const X& x, const FragmentWeights& w, const Routing& routing, const MatrixSpan& out,
                const TensorCoreGemmOptions& options) {
  constexpr const char* kOp = "routed_gemm";
  const GemmInput in = gemm_input(kOp, x, w, options);
  require_depth(kOp, in, w);
  require_routed(kOp, in, routing, options);
  require_operands(kOp, w, out, routing.rows * routing.top_k, w.rows(), options);
  run_product(x, in, {.w = &w, .out = out, .routing = &routing, .options = options});
}

template <class X>
void every_group_any(const X& x, const FragmentWeights& w, const MatrixSpan& out,
                     const TensorCoreGemmOptions& options) {
  constexpr const char* kOp = "gemm_every_group";
  const GemmInput in = gemm_input(kOp, x, w, options);
  require<ShapeError>(in.view.cols == w.cols() || in.view.cols == w.groups() * w.cols(),
                      "{}: x.cols = {}, must be K = {} or G·K = {}", kOp, in.view.cols, w.cols(),
                      w.groups() * w.cols());
  require_operands(kOp, w, out, in.view.rows, w.groups() * w.rows(), options);
  run_product(x, in, {.w = &w, .out = out, .options = options});
}

}  // namespace

PartialSums::PartialSums(Device device) {
  require<UnsupportedError>(device.type == DeviceType::cuda,
                            "PartialSums: device = {}, must be a GPU", device_name(device));
  data_ = Buffer(bytes(), device);
}
std::int64_t PartialSums::bytes() { return cuda::kStreamKFlagBytes + cuda::kStreamKSumBytes; }

std::int64_t gemm_workspace_bytes(const QuantizedShape& x) { return x.rows * x.cols * 2; }

void gemm_into(MatrixView x, const FragmentWeights& w, MatrixSpan out,
               const TensorCoreGemmOptions& options) {
  gemm_any(x, w, out, options);
}
void gemm_into(QuantizedView x, const FragmentWeights& w, MatrixSpan out,
               const TensorCoreGemmOptions& options) {
  gemm_any(x, w, out, options);
}
void grouped_gemm_into(MatrixView x, const FragmentWeights& w, std::span<const std::int32_t> starts,
                       std::span<const std::int32_t> ends, MatrixSpan out,
                       const TensorCoreGemmOptions& options) {
  grouped_any(x, w, starts, ends, out, options);
}
void grouped_gemm_into(QuantizedView x, const FragmentWeights& w,
                       std::span<const std::int32_t> starts, std::span<const std::int32_t> ends,
                       MatrixSpan out, const TensorCoreGemmOptions& options) {
  grouped_any(x, w, starts, ends, out, options);
}
void routed_gemm_into(MatrixView x, const FragmentWeights& w, const Routing& routing,
                      MatrixSpan out, const TensorCoreGemmOptions& options) {
  routed_any(x, w, routing, out, options);
}
void routed_gemm_into(QuantizedView x, const FragmentWeights& w, const Routing& routing,
                      MatrixSpan out, const TensorCoreGemmOptions& options) {
  routed_any(x, w, routing, out, options);
}
void gemm_every_group_into(MatrixView x, const FragmentWeights& w, MatrixSpan out,
                           const TensorCoreGemmOptions& options) {
  every_group_any(x, w, out, options);
}
void gemm_every_group_into(QuantizedView x, const FragmentWeights& w, MatrixSpan out,
                           const TensorCoreGemmOptions& options) {
  every_group_any(x, w, out, options);
}

}  // namespace nvfp4
