// GEMM on a GPU. A description becomes a problem and a plan. A call becomes a job, which the plan's
// architecture launches.
#include "backends/cuda/gemm_backend.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "backends/cuda/gemm/fp8/fp8.h"
#include "backends/cuda/gemm/fp8/launch.h"
#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/gemm/sm100/cublaslt.h"
#include "backends/cuda/gemm/tune.h"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"
#include "backends/cuda/tune_measure.h"
#include "core/require.h"

namespace nvfp4::cuda {
namespace {

/// Returns the bytes of x in BF16 for kernels that cannot read a quantized x (W4A4).
std::int64_t dequantized_x_bytes(const GemmDescription& d, const KernelPlan& plan) {
  if (d.scheme != Scheme::w4a4 || plan.architecture->reads_quantized_x) return 0;
  const std::int64_t rows =
      d.form == GemmForm::routed && d.shared_x && d.top_k > 0 ? d.m / d.top_k : d.m;
  return rows * d.k * (d.form == GemmForm::every_group && !d.shared_x ? d.groups : 1) * 2;
}

KernelProblem problem_of(const GemmDescription& d) {
  const bool routed = d.form == GemmForm::routed;
  return {.n = d.n,
          .k = d.k,
          .m = routed ? 1 : d.m,
          .groups = routed ? d.m : d.groups,
          .grouped = d.form == GemmForm::grouped,
          .routed = routed,
          .batch_invariant = d.batch_invariant,
          .swiglu = d.epilogue != Epilogue::none,
          .quantized_x = d.scheme == Scheme::w4a4};
}

void require_limits(const GemmDescription& d, Device device) {
  constexpr const char* kOp = "plan_gemm";
  require<UnsupportedError>(d.form != GemmForm::grouped || d.groups <= kMostGroups,
                            "{}: groups = {}, at most {} can be run on {}", kOp, d.groups,
                            kMostGroups, device_name(device));
  if (d.form != GemmForm::routed) return;
  require<UnsupportedError>(d.k <= kMostRoutedDepth, "{}: k = {}, at most {} can be run routed",
                            kOp, d.k, kMostRoutedDepth);
  require<ValueError>(!d.batch_invariant,
                      "{}: batch_invariant = true, must be false for routed: see grouped", kOp);
}

/// Returns all architectures, or the one that NVFP4_GEMM_ARCHITECTURE names, such as sm80 on an
/// sm_90 GPU.
std::span<const Architecture* const> usable_architectures() {
  const char* const name = std::getenv("NVFP4_GEMM_ARCHITECTURE");
  return architectures_named(name == nullptr ? "" : name);
}

/// Chooses a plan. Stream-K is allowed only if the caller's workspace limit suffices for its sums.
KernelPlan choose(const GemmDescription& d, const Capability& capability) {
  const KernelProblem problem = problem_of(d);
  if (!d.kernel.empty()) {
    const Architecture* const named[] = {&architecture_of(d.kernel)};
    KernelPlan plan = plan_kernels(problem, capability, kernel_config(d.kernel), named);
    require<ValueError>(plan.workspace_bytes <= d.max_workspace_bytes,
                        "plan_gemm: kernel = '{}' needs {} bytes for its sums, max_workspace_bytes "
                        "= {} must be enough",
                        d.kernel, plan.workspace_bytes, d.max_workspace_bytes);
    return plan;
  }
  if (d.max_workspace_bytes > 0) {
    KernelPlan plan = plan_kernels(problem, capability, true, usable_architectures());
    if (plan.workspace_bytes <= d.max_workspace_bytes) return plan;
  }
  return plan_kernels(problem, capability, false, usable_architectures());
}

/// Reports whether cuBLASLt has the GEMM in FP8, with and without a bias. The library's memory is
/// allocated here, because a captured graph may not allocate.
bool has_fp8(const GemmDescription& d, Device device) {
  const Current current(device);
  cublaslt::Product product = fp8::product_of(d.m, d.n, d.k, d.out);
  product.device = device.index;
  if (!cublaslt::is_supported(product)) return false;
  product.bias = product.x;
  return cublaslt::is_supported(product);
}

Capability capability_of(Device device) {
  return {.major = compute_major(device),
          .minor = compute_minor(device),
          .multiprocessors = multiprocessors(device)};
}

std::vector<std::string> kernel_names(Device device) {
  return kernel_names(capability_of(device), architectures());
}

/// Returns the plan of the cost model, or of the kernel that the description names.
KernelPlan choose(const GemmDescription& d, Device device) {
  const Capability capability = capability_of(device);
  find_architecture(capability, usable_architectures());
  require_limits(d, device);
  if (d.arithmetic == Arithmetic::fp8) {
    // On Hopper mma.sync multiplies only if NVFP4_GEMM_ARCHITECTURE names it.
    const bool by_library =
        capability.major == 9 && usable_architectures().front() == architectures().front();
    std::string reason = fp8::why_unusable(capability);
    if (reason.empty() && by_library) reason = cublaslt::why_unusable_for_fp8();
    require<UnsupportedError>(reason.empty(), "plan_gemm: arithmetic = fp8 {}", reason);
    const Architecture* const only[] = {by_library ? &fp8::kArchitecture : &fp8::kMmaArchitecture};
    if (d.m >= fp8::fewest_rows(d.n, d.k, capability) && (!by_library || has_fp8(d, device)))
      return plan_kernels(problem_of(d), capability, false, only);
  }
  return choose(d, capability);
}

Tuner& tuner_of(Device device) {
  static std::mutex mutex;
  static std::map<int, Tuner> tuners;
  const std::lock_guard lock(mutex);
  return tuners.try_emplace(device.index, tune_target(device)).first->second;
}
Tuner::Prepare measuring_on(Device device) {
  return [device](const GemmDescription& d) {
    return prepare_measuring(d, device, cuda::gpu_gemm_backend(device));
  };
}
std::filesystem::path tune_file() { return tune_file_path(std::getenv); }

GemmTuning tune(const GemmDescription& d, Device device) {
  return tuner_of(device).tune(d, choose(d, device), tune_file(), measuring_on(device));
}

void plan(GemmPlan::Impl& plan) {
  GemmDescription d = plan.description;
  auto chosen = std::make_shared<KernelPlan>(choose(d, plan.device));
  d.arithmetic = Arithmetic::exact;  // of the kernels that are measured
  if (d.autotune && d.m > 0 && chosen->architecture->name != fp8::kArchitecture.name)
    *chosen =
        tuner_of(plan.device).plan(d, *chosen, tune_file(), measuring_on(plan.device), plan.tuned);
  require<UnsupportedError>(chosen->architecture->launch != nullptr,
                            "plan_gemm: this build has no kernels of {}",
                            chosen->architecture->name);
  const KernelConfig& kernel = chosen->parts[0].kernel;
  plan.kernel = kernel_name(kernel, *chosen->architecture);
  plan.tile = {kernel.m, kernel.n, chosen->architecture->stage_k(kernel), kernel.split_k};
  plan.workspace_bytes = call_workspace_bytes(*chosen, dequantized_x_bytes(d, *chosen));
  plan.chosen = std::move(chosen);
}

std::string describe(const GemmPlan::Impl& plan) {
  std::string text = describe(*static_cast<const KernelPlan*>(plan.chosen.get()));
  while (text.ends_with('\n')) text.pop_back();
  std::ranges::replace(text, '\n', ';');
  return text;
}

/// Dequantizes x to BF16 in the workspace, without its global scales; the epilogue applies those.
MatrixView decode(const QuantizedView& x, std::byte* workspace, Stream stream) {
  const QuantizedShape& s = x.shape;
  const MatrixSpan to(workspace, DType::bf16, s.rows, s.cols, s.cols, x.device);
  if (s.rows == 0) return to;
  QuantizedView unscaled = x;
  unscaled.global_scale = nullptr;
  unscaled.shape.scope = GlobalScope::tensor;
  dequantize(unscaled, to, stream);
  return to;
}

void run(const GemmCall& call) {
  const auto& chosen = *static_cast<const KernelPlan*>(call.plan.chosen.get());
  const GemmDescription& d = call.plan.description;
  const GemmArguments& a = call.arguments;
  const PackedStorage& w = a.weights.impl();
  FragmentGemmJob job{.w = &w,
                      .row_ends_settled = call.row_ends_settled,
                      .alpha = a.alpha,
                      .group_alpha = a.group_alpha.empty() ? nullptr : a.group_alpha.data(),
                      .bias = a.bias.empty() ? nullptr : a.bias.data(),
                      .limit = d.swiglu_limit,
                      .stream = call.stream};
  const Current current(call.plan.device);
  if (d.form == GemmForm::grouped) {
    job.ends = a.row_ends.data();
    job.starts = a.row_starts.empty() ? nullptr : a.row_starts.data();
  }
  if (d.form == GemmForm::routed) job.routing = &a.routing;
  if (const QuantizedSpan* out = std::get_if<QuantizedSpan>(&a.out)) {
    job.quantized = *out;
    job.global = a.out_global;
    job.out =
        MatrixSpan(nullptr, DType::f32, out->shape.rows, out->shape.cols, kDense, call.plan.device);
    if (!job.global.empty()) {
      clear_padding(job.quantized, call.stream);
      store_global_scales(job.global, job.quantized, call.stream);
    }
  } else {
    job.out = std::get<MatrixSpan>(a.out);
  }
  // Without any choice of the tokens there is no room for x either.
  if (job.out.rows == 0) return;
  if (chosen.architecture->staging_bytes != nullptr)
    job.staging = call.workspace.subspan(static_cast<std::size_t>(staging_offset(chosen)));
  if (const QuantizedView* x = std::get_if<QuantizedView>(&a.x)) {
    if (chosen.architecture->reads_quantized_x) {
      job.quantized_x = x;
      job.x = MatrixView(x->codes, DType::bf16, x->shape.rows, x->shape.cols, kDense, x->device);
    } else {
      job.x = decode(*x, call.workspace.data() + staging_offset(chosen), call.stream);
    }
    job.x_global = x->global_scale;
    job.x_global_per_row = x->shape.scope == GlobalScope::vector;
  } else {
    job.x = std::get<MatrixView>(a.x);
  }
  chosen.architecture->launch(chosen, job, call.workspace);
}

}  // namespace

const GemmBackend& gpu_gemm_backend(Device device) {
  const std::string reason = why_unavailable(device);
  require<UnsupportedError>(reason.empty(), ErrorCode::device_unavailable, "device = cuda:{}: {}",
                            device.index, reason);
  static constexpr GemmBackend kBackend{.name = "cuda",
                                        .fuses_swiglu = true,
                                        .pack = pack_fragments,
                                        .unpack = unpack_fragments,
                                        .plan = plan,
                                        .kernel_names = kernel_names,
                                        .tune = tune,
                                        .describe = describe,
                                        .run = run,
                                        .dispatch = dispatch,
                                        .gather_rows = gather_rows,
                                        .combine_rows = combine_rows,
                                        .add_rows = add_rows,
                                        .clear_rows_from = clear_rows_from};
  return kBackend;
}

}  // namespace nvfp4::cuda
