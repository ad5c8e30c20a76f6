#include "backends/cuda/gemm/sm90/launch.h"

#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/sm90/cost_model.h"
#include "backends/cuda/gemm/sm90/launchers.h"
#include "backends/cuda/runtime.h"
#include "core/require.h"

/// Plan and job -> arguments, tensor maps and launches.
namespace nvfp4::cuda {
namespace {

/// Whether out can be written 16 bytes at a time: rows start there, and what is N columns ends
/// there.
bool is_wide(const MatrixSpan& out, std::int64_t group_cols) {
  const std::int64_t sixteen = 16 / dtype_size(out.dtype);
  return reinterpret_cast<std::uintptr_t>(out.data) % 16 == 0 && out.stride % sixteen == 0 &&
         group_cols % sixteen == 0;
}

/// Where the outputs of SwiGLU go.
void set_swiglu(const FragmentGemmJob& job, GemmArguments& p) {
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

/// What all parts of a product have in common.
GemmArguments arguments_of(const FragmentGemmJob& job) {
  const PackedStorage& w = *job.w;
  const MatrixView& x = job.x;
  const bool grouped = job.ends != nullptr, routed = job.routing != nullptr;
  const std::int64_t out_rows = routed ? job.routing->rows * job.routing->top_k : x.rows;
  GemmArguments p;
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

/// What the kernel of a part is told beside that; its grid.
std::int64_t set_kernel(const KernelProblem& problem, const KernelConfig& kernel,
                        const FragmentGemmJob& job, std::span<std::byte> workspace,
                        GemmArguments& p) {
  p.split_k = kernel.split_k;
  p.launch_dependents_step = kernel.launch_dependents_step;
  p.prefetch_stages = kernel.prefetch_stages;
  if (!problem.routed) p.x_box = box_rows(kernel, problem.grouped ? job.x.rows : problem.m);
  p.tma_store = has_tma_store(kernel) &&
                (problem.m >= kernel.m || (problem.grouped && has_tma_store_boxes(kernel))) &&
                p.wide_stores && p.codes == nullptr && job.out.dtype == job.x.dtype &&
                !job.x_global_per_row;
  p.out_box = out_box_rows(kernel, problem.grouped);
  p.weights_policy = reads_weights_once(problem, kernel) ? kEvictFirst : kEvictNormal;
  p.stream_k_steps = kernel.stream_k_steps;
  p.stream_k_blocks = static_cast<int>(stream_k_block_count(problem, kernel));
  if (p.stream_k_blocks > 0) {
    p.stream_k_flags = reinterpret_cast<std::uint32_t*>(workspace.data());
    p.stream_k_sums = reinterpret_cast<float*>(workspace.data() + kStreamKFlagBytes);
  }
  const std::int64_t blocks = block_count(problem, kernel);
  require<UnsupportedError>(
      blocks < std::int64_t{1} << 31,
      "gemm: {} groups of {} rows and N = {} need {} blocks, at most 2^31 - 1", problem.groups,
      problem.m, problem.n, blocks);
  return blocks + p.stream_k_blocks;
}

Sm90Launcher* launcher(DType type, bool swiglu) {
  if (swiglu) return type == DType::bf16 ? sm90_gemm_bf16_swiglu : sm90_gemm_f16_swiglu;
  return type == DType::bf16 ? sm90_gemm_bf16 : sm90_gemm_f16;
}

}  // namespace

void sm90_launch(const KernelPlan& plan, const FragmentGemmJob& job,
                 std::span<std::byte> workspace) {
  GemmArguments p = arguments_of(job);
  KernelProblem problem = plan.problem;
  problem.groups = problem.routed ? p.m_total : p.groups;
  const std::int64_t rows = problem.routed ? 1 : job.x.rows;
  Sm90Launcher* const launch = launcher(job.x.dtype, problem.swiglu);
  for (std::size_t i = 0; i < plan.parts.size() && p.m_end < rows; ++i) {
    const PlanPart& part = plan.parts[i];
    // A plan is also for fewer rows than it was made for.
    const bool last = i + 1 == plan.parts.size() || plan.parts[i + 1].rows == 0;
    problem.m = last ? rows - p.m_end : std::min(part.rows, rows - p.m_end);
    p.m_begin = p.m_end;
    p.m_end += static_cast<int>(problem.m);
    const std::int64_t blocks = set_kernel(problem, part.kernel, job, workspace, p);
    TensorMaps maps;
    if (part.kernel.m != kPerWarpXM && !problem.routed)
      maps.x = x_tensor_map(job.x, p.k, p, part.kernel);
    if (p.tma_store) maps.out = out_tensor_map(job.out, p.out_box, problem.swiglu);
    launch(part.kernel, maps, p, static_cast<int>(blocks), stream_of(job.stream));
  }
}

}  // namespace nvfp4::cuda
