// The boundary to src/ops: a job -> problem -> plan -> launch.
#include <vector>

#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"
#include "core/require.h"

namespace nvfp4::cuda {
namespace {

KernelProblem problem_of(const FragmentGemmJob& job) {
  const FragmentWeights& w = *job.w;
  const bool routed = job.routing != nullptr;
  return {.n = w.rows(),
          .k = w.cols(),
          .m = routed ? 1 : job.x.rows,
          .groups = routed ? job.routing->rows * job.routing->top_k : w.groups(),
          .grouped = job.ends != nullptr,
          .routed = routed,
          .batch_invariant = job.options.batch_invariant,
          .swiglu = w.gate_up().has_value()};
}

KernelConfig config_of(const GemmTile& tile) {
  for (const auto& [name, value] :
       {std::pair{"next", tile.next}, {"early", tile.early}, {"help", tile.help}})
    require<ValueError>(value >= 0, "gemm: tile.{} = {} must not be negative", name, value);
  return {.m = tile.tokens,
          .n = tile.rows,
          .split_k = tile.splits,
          .launch_dependents_step = tile.next,
          .prefetch_stages = tile.early == 0 ? kAllStages : tile.early,
          .stream_k_steps = tile.help};
}

/// A model has the same problems over and over, and to choose takes some 30 µs.
const KernelPlan& plan_of(const KernelProblem& problem, const Capability& capability,
                          bool stream_k) {
  struct Planned {
    KernelProblem problem;
    int multiprocessors;
    bool stream_k;
    KernelPlan plan;
  };
  constexpr std::size_t kKept = 64;
  thread_local std::vector<Planned> kept;
  thread_local std::size_t oldest = 0;
  for (const Planned& p : kept)
    if (p.problem == problem && p.multiprocessors == capability.multiprocessors &&
        p.stream_k == stream_k)
      return p.plan;
  Planned planned{problem, capability.multiprocessors, stream_k,
                  plan_gemm(problem, capability, stream_k)};
  if (kept.size() < kKept) return kept.emplace_back(std::move(planned)).plan;
  Planned& replaced = kept[oldest++ % kKept];
  replaced = std::move(planned);
  return replaced.plan;
}

}  // namespace

void fragment_gemm(const FragmentGemmJob& job) {
  const Device device = job.w->device();
  const TensorCoreGemmOptions& options = job.options;
  const Capability capability{.major = compute_major(device),
                              .multiprocessors = multiprocessors(device)};
  find_architecture(capability);
  const Current current(device);
  if (!job.global.empty()) {
    clear_padding(job.quantized, options.stream);
    store_global_scales(job.global, job.quantized, options.stream);
  }
  const KernelProblem problem = problem_of(job);
  if (problem.m == 0 || problem.groups == 0) return;
  std::span<std::byte> workspace;
  if (options.partial_sums != nullptr)
    workspace = {static_cast<std::byte*>(options.partial_sums->data()),
                 static_cast<std::size_t>(PartialSums::bytes())};
  KernelPlan forced;
  if (options.tile.tokens != 0) {
    const KernelConfig kernel = config_of(options.tile);
    require<ValueError>(kernel.stream_k_steps == 0 || !workspace.empty(),
                        "gemm: tile.help = {} needs partial_sums", kernel.stream_k_steps);
    forced = plan_gemm(problem, capability, kernel);
  }
  const KernelPlan& plan =
      options.tile.tokens != 0 ? forced : plan_of(problem, capability, !workspace.empty());
  plan.architecture->launch(plan, job, workspace);
}

}  // namespace nvfp4::cuda
