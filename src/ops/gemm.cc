#include "nvfp4/gemm.h"

#include <vector>

#include "core/require.h"
#include "ops/gemm_loop.h"
#include "ops/options.h"

namespace nvfp4 {
namespace {

void require_dtype(const char* op, const char* argument, DType t) {
  require<ValueError>(t == DType::f32 || t == DType::bf16 || t == DType::f16,
                      "{}: {}.dtype = {}, must be f32, bf16 or f16", op, argument,
                      static_cast<int>(t));
}

Activations activations(const char* op, const MatrixView& x) {
  require_dtype(op, "x", x.dtype);
  require_matrix(op, "x", x);
  require_cpu(op, "x", x.device);
  return {.data = x.data,
          .dtype = x.dtype,
          .stride = x.stride,
          .rows = x.rows,
          .blocks = x.cols / kBlock};
}

Activations activations(const char* op, const QuantizedView& x) {
  require_quantized(op, "x", x);
  require_cpu(op, "x", x.device);
  const QuantizedShape& s = x.shape;
  require<ShapeError>(s.axis == BlockAxis::rows,
                      "{}: x has its blocks down the columns, must have "
                      "them along the rows",
                      op);
  require<ShapeError>(s.block == kBlock, "{}: x has blocks of {}, must be 16", op, s.block);
  require<ShapeError>(s.layout == ScaleLayout::linear, "{}: x has {} scales, must be linear", op,
                      layout_name(s.layout));
  require<ShapeError>(s.rows == 0 || x.global_scale != nullptr, "{}: x.global_scale is null", op);
  require<ShapeError>(reinterpret_cast<std::uintptr_t>(x.global_scale) % alignof(float) == 0,
                      "{}: x.global_scale = {}, must be aligned to its f32 elements", op,
                      static_cast<const void*>(x.global_scale));
  return {.codes = x.codes,
          .scales = x.scales,
          .code_stride = s.cols / 2,
          .scale_stride = s.blocks(),
          .global = x.global_scale,
          .global_per_row = s.scope == GlobalScope::vector,
          .rows = s.rows,
          .blocks = s.blocks()};
}

/// Rows [row, row + rows), blocks [block, block + blocks).
Activations part_of(Activations x, std::int64_t row, std::int64_t rows, std::int64_t block,
                    std::int64_t blocks) {
  if (x.data != nullptr)
    x.data = static_cast<const std::byte*>(x.data) +
             (row * x.stride + block * kBlock) * dtype_size(x.dtype);
  if (x.codes != nullptr) {
    x.codes += row * x.code_stride + block * (kBlock / 2);
    x.scales += row * x.scale_stride + block;
  }
  if (x.global_per_row) x.global += row;
  x.rows = rows;
  x.blocks = blocks;
  return x;
}

MatrixSpan part_of(MatrixSpan out, std::int64_t row, std::int64_t rows, std::int64_t col,
                   std::int64_t cols) {
  if (out.data != nullptr)
    out.data = static_cast<std::byte*>(out.data) + (row * out.stride + col) * dtype_size(out.dtype);
  out.rows = rows;
  out.cols = cols;
  return out;
}

const GemmKernels& kernels_for(const Backend& backend, const MatrixView& x) {
  const GemmKernels& own = x.dtype == DType::bf16 ? backend.w4a16_bf16 : backend.w4a16_f16;
  return x.dtype != DType::f32 && own.direct.run != nullptr ? own : backend.w4a16;
}
const GemmKernels& kernels_for(const Backend& backend, const QuantizedView&) {
  return backend.w4a4;
}

template <class X>
void run(const char* op, std::string_view name, const X& x, std::span<const GemmJob> jobs,
         bool batch_invariant) {
  const Backend& backend = find_backend(name);
  const GemmKernels& kernels = kernels_for(backend, x);
  require<UnsupportedError>(kernels.direct.run != nullptr, "{}: backend '{}' has no such kernels",
                            op, backend.name);
  run_gemm(backend, kernels, jobs, batch_invariant);
}

void require_output(const char* op, const MatrixSpan& out, std::int64_t rows, std::int64_t cols) {
  require_dtype(op, "out", out.dtype);
  require_matrix(op, "out", out);
  require_cpu(op, "out", out.device);
  require<ShapeError>(out.rows == rows && out.cols == cols,
                      "{}: out has shape [{}, {}], must be [{}, {}]", op, out.rows, out.cols, rows,
                      cols);
}

void require_bias(const char* op, std::span<const float> bias, std::int64_t n) {
  require<ShapeError>(bias.empty() || static_cast<std::int64_t>(bias.size()) == n,
                      "{}: bias has {} elements, must have none or {}", op, bias.size(), n);
}

std::int64_t cols_of(const MatrixView& x) { return x.cols; }
std::int64_t cols_of(const QuantizedView& x) { return x.shape.cols; }

void require_depth(const char* op, std::int64_t cols, std::int64_t k) {
  require<ShapeError>(cols % kBlock == 0, "{}: K = x.cols = {}, must be a multiple of 16", op,
                      cols);
  require<ShapeError>(cols == k, "{}: x.cols = {}, must be K = {} as in w", op, cols, k);
}

GemmJob make_job(const Activations& x, const PackedWeights& w, const MatrixSpan& out, float alpha,
                 const float* bias) {
  return {.x = x,
          .w = &w,
          .output = {.out = out,
                     .alpha = alpha,
                     .x_global = x.global,
                     .x_global_per_row = x.global_per_row,
                     .w_global = w.global_scale(),
                     .w_global_per_row = w.scope() == GlobalScope::vector,
                     .bias = bias}};
}

template <class X>
void gemm_any(const X& x, const PackedWeights& w, const MatrixSpan& out,
              const GemmOptions& options) {
  constexpr const char* kOp = "gemm";
  const Activations a = activations(kOp, x);
  require<ShapeError>(w.rows() >= 1, "gemm: w is empty, N must be at least 1");
  require_depth(kOp, cols_of(x), w.cols());
  require_output(kOp, out, a.rows, w.rows());
  require_bias(kOp, options.bias, w.rows());
  const GemmJob job =
      make_job(a, w, out, options.alpha, options.bias.empty() ? nullptr : options.bias.data());
  run(kOp, options.backend, x, {&job, 1}, options.batch_invariant);
}

/// Throws unless all groups have one shape.
void require_groups(const char* op, std::span<const PackedWeights> w,
                    const GroupedGemmOptions& options) {
  require<ShapeError>(!w.empty(), "{}: no groups, must be at least one", op);
  require<ShapeError>(w[0].rows() >= 1, "{}: w[0] is empty, N must be at least 1", op);
  for (std::size_t g = 1; g < w.size(); ++g)
    require<ShapeError>(w[g].rows() == w[0].rows() && w[g].cols() == w[0].cols(),
                        "{}: w[{}] is [{}, {}], must be [{}, {}] as w[0]", op, g, w[g].rows(),
                        w[g].cols(), w[0].rows(), w[0].cols());
  require<ShapeError>(options.alpha.empty() || options.alpha.size() == w.size(),
                      "{}: alpha has {} elements, must have none or {}", op, options.alpha.size(),
                      w.size());
  require_bias(op, options.bias, static_cast<std::int64_t>(w.size()) * w[0].rows());
}

GemmJob make_group_job(const Activations& x, std::span<const PackedWeights> w, std::size_t g,
                       const MatrixSpan& out, const GroupedGemmOptions& options) {
  const auto n = static_cast<std::size_t>(w[g].rows());
  return make_job(x, w[g], out, options.alpha.empty() ? 1.0f : options.alpha[g],
                  options.bias.empty() ? nullptr : options.bias.data() + g * n);
}

template <class X>
void grouped_any(const X& x, std::span<const PackedWeights> w,
                 std::span<const std::int64_t> row_ends, const MatrixSpan& out,
                 const GroupedGemmOptions& options) {
  constexpr const char* kOp = "grouped_gemm";
  const Activations a = activations(kOp, x);
  require_groups(kOp, w, options);
  require_depth(kOp, cols_of(x), w[0].cols());
  require_output(kOp, out, a.rows, w[0].rows());
  require<ShapeError>(row_ends.size() == w.size(),
                      "grouped_gemm: row_ends has {} elements, must have {}, one for each group",
                      row_ends.size(), w.size());
  std::vector<GemmJob> jobs;
  std::int64_t row = 0;
  for (std::size_t g = 0; g < w.size(); ++g) {
    const std::int64_t end = row_ends[g];
    require<ShapeError>(end >= row, "grouped_gemm: row_ends[{}] = {}, must not be below {}", g, end,
                        row);
    require<ShapeError>(end <= a.rows, "grouped_gemm: row_ends[{}] = {}, must be at most M = {}", g,
                        end, a.rows);
    if (end > row)
      jobs.push_back(make_group_job(part_of(a, row, end - row, 0, a.blocks), w, g,
                                    part_of(out, row, end - row, 0, out.cols), options));
    row = end;
  }
  run<X>(kOp, options.backend, x, jobs, options.batch_invariant);
}

template <class X>
void every_group_any(const X& x, std::span<const PackedWeights> w, const MatrixSpan& out,
                     const GroupedGemmOptions& options) {
  constexpr const char* kOp = "gemm_every_group";
  const Activations a = activations(kOp, x);
  require_groups(kOp, w, options);
  const auto groups = static_cast<std::int64_t>(w.size());
  const std::int64_t k = w[0].cols(), n = w[0].rows();
  const bool shared = cols_of(x) == k;
  require<ShapeError>(cols_of(x) % kBlock == 0 && (shared || cols_of(x) == groups * k),
                      "{}: x.cols = {}, must be K = {} or G·K = {}", kOp, cols_of(x), k,
                      groups * k);
  require_output(kOp, out, a.rows, groups * n);
  std::vector<GemmJob> jobs;
  for (std::int64_t g = 0; g < groups; ++g)
    jobs.push_back(make_group_job(part_of(a, 0, a.rows, shared ? 0 : g * (k / kBlock), k / kBlock),
                                  w, static_cast<std::size_t>(g), part_of(out, 0, a.rows, g * n, n),
                                  options));
  run<X>(kOp, options.backend, x, jobs, options.batch_invariant);
}

}  // namespace

void gemm_into(MatrixView x, const PackedWeights& w, MatrixSpan out, const GemmOptions& options) {
  gemm_any(x, w, out, options);
}
void gemm_into(QuantizedView x, const PackedWeights& w, MatrixSpan out,
               const GemmOptions& options) {
  gemm_any(x, w, out, options);
}

Matrix gemm(MatrixView x, const PackedWeights& w, DType dtype, const GemmOptions& options) {
  require_dtype("gemm", "out", dtype);
  require_matrix("gemm", "x", x);
  Matrix out(dtype, x.rows, w.rows());
  gemm_into(x, w, out.span(), options);
  return out;
}
Matrix gemm(QuantizedView x, const PackedWeights& w, DType dtype, const GemmOptions& options) {
  require_dtype("gemm", "out", dtype);
  require_quantized("gemm", "x", x);
  Matrix out(dtype, x.shape.rows, w.rows());
  gemm_into(x, w, out.span(), options);
  return out;
}

void grouped_gemm_into(MatrixView x, std::span<const PackedWeights> w,
                       std::span<const std::int64_t> row_ends, MatrixSpan out,
                       const GroupedGemmOptions& options) {
  grouped_any(x, w, row_ends, out, options);
}
void grouped_gemm_into(QuantizedView x, std::span<const PackedWeights> w,
                       std::span<const std::int64_t> row_ends, MatrixSpan out,
                       const GroupedGemmOptions& options) {
  grouped_any(x, w, row_ends, out, options);
}
void gemm_every_group_into(MatrixView x, std::span<const PackedWeights> w, MatrixSpan out,
                           const GroupedGemmOptions& options) {
  every_group_any(x, w, out, options);
}
void gemm_every_group_into(QuantizedView x, std::span<const PackedWeights> w, MatrixSpan out,
                           const GroupedGemmOptions& options) {
  every_group_any(x, w, out, options);
}

}  // namespace nvfp4
