// GEMM on the CPU: chooses kernels and divides a call into the jobs that gemm_loop.cc runs.
#include <algorithm>
#include <variant>
#include <vector>

#include "backends/backend.h"
#include "backends/host/gemm_loop.h"
#include "backends/host/host.h"
#include "core/require.h"
#include "nvfp4/runtime.h"

namespace nvfp4::host {
namespace {

struct Chosen {
  const Backend* backend = nullptr;
  const GemmKernels* kernels = nullptr;
};

/// The arithmetic of a description on a backend, and the suffix of its kernels' names.
struct Arithmetic {
  const GemmKernels* kernels;
  const char* suffix;
};
Arithmetic arithmetic_of(const Backend& backend, const GemmDescription& d) {
  if (d.scheme == Scheme::w4a4) return {&backend.w4a4, "_w4a4"};
  if (d.x == DType::bf16 && backend.w4a16_bf16.direct.run != nullptr)
    return {&backend.w4a16_bf16, "_w4a16_bf16"};
  if (d.x == DType::f16 && backend.w4a16_f16.direct.run != nullptr)
    return {&backend.w4a16_f16, "_w4a16_f16"};
  return {&backend.w4a16, "_w4a16"};
}

/// Returns "cpu-avx2" for "cpu-avx2_w4a16_bf16".
std::string_view backend_of(std::string_view kernel) { return kernel.substr(0, kernel.find('_')); }

Activations activations(const MatrixView& x) {
  return {.data = x.data,
          .dtype = x.dtype,
          .stride = x.stride,
          .rows = x.rows,
          .blocks = x.cols / kBlock};
}
Activations activations(const QuantizedView& x) {
  const QuantizedShape& s = x.shape;
  return {.codes = x.codes,
          .scales = x.scales,
          .code_stride = s.cols / 2,
          .scale_stride = s.blocks(),
          .global = x.global_scale,
          .global_per_row = s.scope == GlobalScope::vector,
          .rows = s.rows,
          .blocks = s.blocks()};
}

/// Returns rows [row, row + rows), blocks [block, block + blocks).
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

GemmJob make_job(const GemmArguments& a, std::int64_t group, const Activations& x,
                 const MatrixSpan& out) {
  const PackedStorage& w = a.weights.impl();
  const auto g = static_cast<std::size_t>(group);
  const auto n = static_cast<std::size_t>(w.rows());
  return {.x = x,
          .w = w.panels_of(group),
          .output = {.out = out,
                     .alpha = a.group_alpha.empty() ? a.alpha : a.alpha * a.group_alpha[g],
                     .x_global = x.global,
                     .x_global_per_row = x.global_per_row,
                     .w_global = w.global_scale() + group * w.group_globals(),
                     .w_global_per_row = w.scope() == GlobalScope::vector,
                     .bias = a.bias.empty() ? nullptr : a.bias.data() + g * n}};
}

/// Returns one GEMM for each group that has rows, or for each routed row.
std::vector<GemmJob> jobs_of(const GemmCall& call, const Activations& x, const MatrixSpan& out) {
  const GemmDescription& d = call.plan.description;
  const GemmArguments& a = call.arguments;
  const std::int64_t blocks = d.k / kBlock;
  std::vector<GemmJob> jobs;
  std::int64_t row = 0;
  switch (d.form) {
    case GemmForm::dense:
      jobs.push_back(make_job(a, 0, x, out));
      break;
    case GemmForm::every_group:
      for (std::int64_t g = 0; g < d.groups; ++g)
        jobs.push_back(make_job(a, g, part_of(x, 0, x.rows, d.shared_x ? 0 : g * blocks, blocks),
                                part_of(out, 0, x.rows, g * d.n, d.n)));
      break;
    case GemmForm::grouped:
      for (std::int64_t g = 0; g < d.groups; ++g) {
        const auto i = static_cast<std::size_t>(g);
        if (!a.row_starts.empty()) row = a.row_starts[i];
        const std::int64_t rows = a.row_ends[i] - row;
        if (rows > 0)
          jobs.push_back(make_job(a, g, part_of(x, row, rows, 0, blocks),
                                  part_of(out, row, rows, 0, out.cols)));
        row = a.row_ends[i];
      }
      break;
    case GemmForm::routed:
      for (; row < out.rows; ++row) {
        const std::int64_t token = row / d.top_k;
        jobs.push_back(make_job(a, id_at(a.routing, token, row % d.top_k),
                                part_of(x, d.shared_x ? token : row, 1, 0, blocks),
                                part_of(out, row, 1, 0, out.cols)));
      }
      break;
  }
  return jobs;
}

}  // namespace

void plan(GemmPlan::Impl& plan) {
  const GemmDescription& d = plan.description;
  auto chosen = std::make_shared<Chosen>();
  chosen->backend =
      &find_backend(d.kernel.empty() ? std::string_view(d.backend) : backend_of(d.kernel));
  const Arithmetic arithmetic = arithmetic_of(*chosen->backend, d);
  chosen->kernels = arithmetic.kernels;
  require<UnsupportedError>(chosen->kernels->direct.run != nullptr,
                            "plan_gemm: backend '{}' has no kernels for this GEMM",
                            chosen->backend->name);
  plan.kernel = std::string(chosen->backend->name) + arithmetic.suffix;
  require<ValueError>(d.kernel.empty() || d.kernel == plan.kernel,
                      "plan_gemm: kernel = '{}' has another arithmetic, must be '{}'", d.kernel,
                      plan.kernel);
  const GemmTiling t =
      choose_gemm_tiling(*chosen->kernels, d.m, d.n, d.k / kBlock, threads(), d.batch_invariant);
  plan.tile = {static_cast<int>(chosen->kernels->records(t.direct).strip_rows),
               static_cast<int>((t.direct ? 1 : chosen->kernels->tile.panels) * kPanelRows),
               static_cast<int>(t.direct ? d.k : t.depth * kBlock)};
  plan.chosen = chosen;
}

std::string describe(const GemmPlan::Impl& plan) {
  const GemmKernels& kernels = *static_cast<const Chosen*>(plan.chosen.get())->kernels;
  if (kernels.tile.run == nullptr) return "weights read from their panels";
  if (kernels.direct.differs && plan.description.batch_invariant)
    return "weights dequantized once for many rows";
  return fmt::format(
      "weights read from their panels for up to {} rows of a group, dequantized "
      "once for more",
      kernels.direct.most_rows);
}

void run(const GemmCall& call) {
  const auto& chosen = *static_cast<const Chosen*>(call.plan.chosen.get());
  const GemmArguments& a = call.arguments;
  const Activations x = std::visit([](const auto& view) { return activations(view); }, a.x);
  run_gemms(*chosen.backend, *chosen.kernels, jobs_of(call, x, std::get<MatrixSpan>(a.out)),
            call.plan.description.batch_invariant);
}

const GemmBackend& cpu_gemm_backend() {
  static constexpr GemmBackend kBackend{.name = "cpu",
                                        .fuses_swiglu = false,
                                        .pack = pack,
                                        .unpack = unpack,
                                        .plan = plan,
                                        .describe = describe,
                                        .run = run,
                                        .dispatch = dispatch,
                                        .gather_rows = gather_rows,
                                        .combine_rows = combine_rows,
                                        .add_rows = add_rows,
                                        .clear_rows_from = clear_rows_from};
  return kBackend;
}

}  // namespace nvfp4::host
