#include "ops/tensor_core_product.h"

namespace nvfp4 {
namespace {

/// Rows, and bytes between rows, that the copy engine can count.
constexpr std::int64_t kMostRows = (std::int64_t{1} << 31) - 256;  // a tile less than 2^31
constexpr std::int64_t kMostRowBytes = std::int64_t{1} << 40;

void require_gpu(const char* op, const FragmentWeights& w) {
  require<ShapeError>(w.groups() >= 1, "{}: w is empty", op);
  require<UnsupportedError>(
      w.device().type == DeviceType::cuda,
      "{}: w lies on {}, this product runs on a GPU only; see pack_weights for the CPU", op,
      device_name(w.device()));
}

}  // namespace

GemmInput gemm_input(const char* op, const MatrixView& x, const FragmentWeights& w,
                     const TensorCoreGemmOptions&) {
  require_gpu(op, w);
  require<ValueError>(x.dtype == DType::bf16 || x.dtype == DType::f16,
                      "{}: x.dtype = {}, must be bf16 or f16", op, dtype_name(x.dtype));
  require_on(op, "x", x.device, w.device());
  require_matrix(op, "x", x);
  require<ShapeError>(x.rows <= kMostRows, "{}: x.rows = {}, must be at most {}", op, x.rows,
                      kMostRows);
  require<ShapeError>(
      x.stride % 8 == 0 && x.stride * dtype_size(x.dtype) < kMostRowBytes,
      "{}: x.stride = {}, must be a multiple of 8 (rows start at multiples of 16 bytes) and less "
      "than 2^39",
      op, x.stride);
  return {.view = x};
}

GemmInput gemm_input(const char* op, const QuantizedView& x, const FragmentWeights& w,
                     const TensorCoreGemmOptions& options) {
  require_gpu(op, w);
  require_quantized(op, "x", x);
  require_on(op, "x", x.device, w.device());
  const QuantizedShape& s = x.shape;
  require<ShapeError>(s.axis == BlockAxis::rows,
                      "{}: x has its blocks down the columns, must have them along the rows", op);
  require<ShapeError>(s.block == kBlock, "{}: x has blocks of {}, must be 16", op, s.block);
  require<ShapeError>(s.rows <= kMostRows, "{}: x has {} rows, must be at most {}", op, s.rows,
                      kMostRows);
  const std::int64_t bytes = gemm_workspace_bytes(s);
  require<ShapeError>(static_cast<std::int64_t>(options.workspace.size()) >= bytes &&
                          (bytes == 0 || options.workspace.data() != nullptr),
                      "{}: workspace has {} bytes, must have {}: see gemm_workspace_bytes", op,
                      options.workspace.size(), bytes);
  require_aligned(op, "workspace", options.workspace.data(), w.device());
  return {
      .view = MatrixView(options.workspace.data(), DType::bf16, s.rows, s.cols, s.cols, w.device()),
      .global = x.global_scale,
      .global_per_row = s.scope == GlobalScope::vector};
}

void decode(const QuantizedView& x, const GemmInput& to, Stream stream) {
  QuantizedView unscaled = x;
  unscaled.global_scale = nullptr;
  unscaled.shape.scope = GlobalScope::tensor;
  // The workspace is the caller's to write.
  const MatrixSpan out(const_cast<void*>(to.view.data), to.view.dtype, to.view.rows, to.view.cols,
                       to.view.stride, to.view.device);
  device_backend(x.device).dequantize(unscaled, out, stream);
}

void require_depth(const char* op, const GemmInput& x, const FragmentWeights& w) {
  require<ShapeError>(x.view.cols == w.cols(), "{}: x.cols = {}, must be K = {} as in w", op,
                      x.view.cols, w.cols());
}
void require_one_group(const char* op, const FragmentWeights& w) {
  require<ShapeError>(w.groups() == 1, "{}: w has {} groups, must have one", op, w.groups());
}

void require_groups(const char* op, const FragmentWeights& w, std::span<const std::int32_t> starts,
                    std::span<const std::int32_t> ends) {
  require<UnsupportedError>(w.groups() <= kMostGroups, "{}: w has {} groups, at most {} can be run",
                            op, w.groups(), kMostGroups);
  const auto groups = static_cast<std::size_t>(w.groups());
  require<ShapeError>(ends.size() == groups, "{}: ends has {} elements, must have G = {}", op,
                      ends.size(), groups);
  require<ShapeError>(starts.empty() || starts.size() == groups,
                      "{}: starts has {} elements, must have none or G = {}", op, starts.size(),
                      groups);
  require_array(op, "ends", ends.data(), w.groups());
  require_array(op, "starts", starts.data(), static_cast<std::int64_t>(starts.size()));
}

void require_routed(const char* op, const GemmInput& x, const Routing& routing,
                    const TensorCoreGemmOptions& options) {
  require_ids(op, routing, routing.rows);
  const std::int64_t most = (std::int64_t{1} << 31) - 1;
  require<UnsupportedError>(routing.top_k == 0 || routing.rows <= most / routing.top_k,
                            "{}: {} tokens with {} choices each, at most 2^31 - 1 rows can be run",
                            op, routing.rows, routing.top_k);
  const std::int64_t rows = routing.rows * routing.top_k;
  require<ShapeError>(x.view.rows == routing.rows || x.view.rows == rows,
                      "{}: x has {} rows, must have one for each of {} tokens, or for each of "
                      "their {} choices",
                      op, x.view.rows, routing.rows, rows);
  require<UnsupportedError>(x.view.cols <= kMostRoutedDepth, "{}: K = {}, at most {} can be run",
                            op, x.view.cols, kMostRoutedDepth);
  require<ValueError>(!options.batch_invariant,
                      "{}: batch_invariant = true, must be false: see grouped_gemm_into", op);
}

void require_factors(const char* op, const FragmentWeights& w,
                     const TensorCoreGemmOptions& options) {
  const auto given = [](std::span<const float> s) { return static_cast<std::int64_t>(s.size()); };
  require<ShapeError>(given(options.group_alpha) == 0 || given(options.group_alpha) == w.groups(),
                      "{}: group_alpha has {} elements, must have none or G = {}", op,
                      options.group_alpha.size(), w.groups());
  require_array(op, "group_alpha", options.group_alpha.data(), given(options.group_alpha));
  require<ShapeError>(given(options.bias) == 0 || given(options.bias) == w.groups() * w.rows(),
                      "{}: bias has {} elements, must have none or G·N = {}", op,
                      options.bias.size(), w.groups() * w.rows());
  require_array(op, "bias", options.bias.data(), given(options.bias));
  if (options.partial_sums == nullptr) return;
  require<ValueError>(options.partial_sums->data() != nullptr,
                      "{}: partial_sums is empty: it was moved from", op);
  require_on(op, "partial_sums", options.partial_sums->device(), w.device());
}

void require_product(const char* op, const MatrixSpan& out, std::int64_t rows, std::int64_t cols,
                     Device device) {
  require<ValueError>(
      out.dtype == DType::f32 || out.dtype == DType::bf16 || out.dtype == DType::f16,
      "{}: out.dtype = {}, must be f32, bf16 or f16", op, static_cast<int>(out.dtype));
  require_on(op, "out", out.device, device);
  require_matrix(op, "out", out);
  require<ShapeError>(out.rows == rows && out.cols == cols,
                      "{}: out has shape [{}, {}], must be [{}, {}]", op, out.rows, out.cols, rows,
                      cols);
}

}  // namespace nvfp4
