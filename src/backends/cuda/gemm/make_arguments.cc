#include "backends/cuda/gemm/make_arguments.h"

#include "backends/cuda/gemm/fragment_layout.h"
#include "core/require.h"

namespace nvfp4::cuda {
namespace {

/// Reports whether out allows 16-byte stores: rows and groups of columns start at multiples of 16
/// bytes.
bool is_wide(const MatrixSpan& out, std::int64_t group_cols) {
  const std::int64_t sixteen = 16 / dtype_size(out.dtype);
  return reinterpret_cast<std::uintptr_t>(out.data) % 16 == 0 && out.stride % sixteen == 0 &&
         group_cols % sixteen == 0;
}

/// Sets the output of SwiGLU.
void set_swiglu(const FragmentGemmJob& job, KernelArguments& p) {
  p.limit = job.limit;
  p.interleave = job.w->gate_up()->interleave;
  if (job.quantized.codes == nullptr) return;
  p.codes = job.quantized.codes;
  p.scales = job.quantized.scales;
  p.scale_layout = job.quantized.shape.layout;
  p.out_globals.of_vectors = job.quantized.shape.scope == GlobalScope::vector;
  if (job.global.device.type == DeviceType::cuda)
    p.out_globals.given = job.global.data;
  else
    p.out_globals.value = job.global[0];
}

}  // namespace

KernelArguments arguments_of(const FragmentGemmJob& job) {
  const PackedStorage& w = *job.w;
  const MatrixView& x = job.x;
  const bool grouped = job.ends != nullptr, routed = job.routing != nullptr;
  const std::int64_t out_rows = routed ? job.routing->rows * job.routing->top_k : x.rows;
  KernelArguments p;
  p.weights = w.data();
  p.group_bytes = w.group_bytes();
  p.n_tiles = static_cast<int>(w.row_tiles());
  p.chunks = static_cast<int>(w.col_tiles());
  p.n = static_cast<int>(w.rows());
  p.w_global = w.global_scale();
  p.w_global_per_row = w.scope() == GlobalScope::vector;
  p.x_global = job.x_global;
  p.x_global_per_row = job.x_global_per_row;
  p.alpha = job.group_alpha;
  p.factor = job.alpha;
  p.bias = job.bias;
  p.groups = static_cast<int>(w.groups());
  p.starts = job.starts;
  p.ends = job.ends;
  if (routed) p.routing = *job.routing;
  p.rows_of_token = static_cast<int>(out_rows / x.rows);
  p.ends_settled = job.row_ends_settled;
  p.m_total = static_cast<int>(out_rows);
  p.x = x.data;
  p.x_stride = x.stride;
  p.k = static_cast<int>(w.cols());
  p.x_whole_chunks = w.cols() % kTileCols == 0;
  p.x_of_group = x.cols != w.cols();
  p.out_group_cols = grouped || routed ? 0 : static_cast<int>(w.rows());
  p.out = job.out.data;
  p.out_type = job.out.dtype;
  p.out_stride = job.out.stride;
  p.wide_stores = is_wide(job.out, w.rows());
  if (w.gate_up()) set_swiglu(job, p);
  return p;
}

int grid_of(const KernelProblem& problem, std::int64_t blocks) {
  require<UnsupportedError>(
      blocks < std::int64_t{1} << 31,
      "gemm: {} groups of {} rows and N = {} need {} blocks, at most 2^31 - 1", problem.groups,
      problem.m, problem.n, blocks);
  return static_cast<int>(blocks);
}

}  // namespace nvfp4::cuda
