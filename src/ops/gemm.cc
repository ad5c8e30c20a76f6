#include "nvfp4/gemm.h"

#include <ostream>
#include <vector>

#include "backends/gemm_backend.h"
#include "backends/host/host.h"
#include "core/require.h"
#include "core/rows_of.h"
#include "ops/check_gemm.h"
#include "ops/run_gemm.h"

namespace nvfp4 {
namespace {

bool ends_in_swiglu(const GemmDescription& d) { return d.epilogue != Epilogue::none; }

/// Reports whether SwiGLU is a separate step. The FP32 sums then go to the workspace.
bool has_steps(const GemmPlan::Impl& plan) {
  return ends_in_swiglu(plan.description) && !plan.backend->fuses_swiglu;
}

constexpr std::int64_t kWorkspaceAlignment = 256;

/// Returns the offset of the sums of SwiGLU in a workspace, behind the backend's part.
std::int64_t sums_offset(const GemmPlan::Impl& plan) {
  return round_up(plan.workspace_bytes, kWorkspaceAlignment);
}
std::int64_t sums_bytes(const GemmDescription& d) {
  return d.m * d.n * static_cast<std::int64_t>(sizeof(float));
}

/// Computes SwiGLU for some rows; each row has its own result.
void swiglu_rows(const GemmCall& call, const MatrixView& sums, std::int64_t row,
                 std::int64_t rows) {
  const GemmDescription& d = call.plan.description;
  const SwigluOptions swiglu{.interleave = call.arguments.weights.impl().gate_up()->interleave,
                             .limit = d.swiglu_limit};
  QuantizeOptions options{.backend = d.backend, .stream = call.stream};
  if (d.epilogue == Epilogue::swiglu)
    return swiglu_into(rows_of(sums, row, rows),
                       rows_of(std::get<MatrixSpan>(call.arguments.out), row, rows), swiglu,
                       options);
  const QuantizedSpan& out = std::get<QuantizedSpan>(call.arguments.out);
  options.layout = out.shape.layout;
  options.scope = out.shape.scope;
  options.global = call.arguments.out_global;
  if (options.global.size() > 1) {
    options.global.data += row;
    options.global.count = static_cast<std::size_t>(rows);
  }
  swiglu_quantize_into(rows_of(sums, row, rows),
                       rows == out.shape.rows ? out : rows_of(out, row, rows), swiglu, options);
}

/// Runs the GEMM with FP32 sums in the workspace, then SwiGLU for the rows of each group.
void run_steps(const GemmCall& call) {
  const GemmPlan::Impl& plan = call.plan;
  const std::int64_t rows = rows_of_result(call.arguments);
  const MatrixSpan sums(call.workspace.data() + sums_offset(plan), DType::f32, rows,
                        plan.description.n, kDense, plan.device);
  GemmArguments product = call.arguments;
  product.out = sums;
  plan.backend->run({plan, product, call.workspace, call.stream, call.row_ends_settled});
  if (plan.description.form != GemmForm::grouped) return swiglu_rows(call, sums, 0, rows);
  const GemmArguments& a = call.arguments;
  for (std::size_t g = 0; g < a.row_ends.size(); ++g) {
    const std::int32_t start = !a.row_starts.empty() ? a.row_starts[g]
                               : g == 0              ? 0
                                                     : a.row_ends[g - 1];
    if (a.row_ends[g] > start) swiglu_rows(call, sums, start, a.row_ends[g] - start);
  }
}

/// A cached plan of a GPU. A model has the same problems again and again, and a plan takes about 30
/// µs.
struct CachedPlan {
  GemmDescription description;
  Device device;
  GemmPlan plan;
};
constexpr std::size_t kMostPlans = 64;
thread_local std::vector<CachedPlan> cached_plans;
thread_local std::size_t oldest_plan = 0;

const GemmPlan* find_cached(const GemmDescription& d, Device device) {
  for (const CachedPlan& k : cached_plans)
    if (k.device == device && k.description == d) return &k.plan;
  return nullptr;
}

void cache(const CachedPlan& k) {
  if (cached_plans.size() < kMostPlans)
    cached_plans.push_back(k);
  else
    cached_plans[oldest_plan++ % kMostPlans] = k;
}

const char* form_name(GemmForm form) {
  constexpr const char* kNames[] = {"dense", "grouped", "routed", "every_group"};
  return kNames[static_cast<std::size_t>(form)];
}

std::string describe(const GemmDescription& d) {
  std::string text = fmt::format(
      "{} {} [{}, {}] x [{}{}, {}]", d.scheme == Scheme::w4a4 ? "W4A4" : "W4A16", form_name(d.form),
      d.m, d.k, d.form == GemmForm::dense ? "" : fmt::format("{}, ", d.groups), d.n, d.k);
  if (d.scheme == Scheme::w4a16) text += fmt::format(", x {}", dtype_name(d.x));
  if (d.epilogue == Epilogue::swiglu_quantize)
    text += ", SwiGLU, quantized";
  else
    text += fmt::format("{}, out {}", ends_in_swiglu(d) ? ", SwiGLU" : "", dtype_name(d.out));
  if (d.batch_invariant) text += ", batch-invariant";
  if (d.arithmetic == Arithmetic::fp8) text += ", fp8";
  return text;
}

}  // namespace

namespace {
/// Returns the backend of a device. Throws UnsupportedError if it cannot be tuned.
const GemmBackend& tunable_backend(const char* op, Device device) {
  const GemmBackend& backend = gemm_backend(device);
  require<UnsupportedError>(backend.tune != nullptr,
                            "{}: device = {}, must be a GPU to be tuned: there is one kernel for a "
                            "GEMM on {}",
                            op, device_name(device), device_name(device));
  return backend;
}
}  // namespace

GemmPlan plan_gemm(const GemmDescription& description, Device device) {
  check_description("plan_gemm", description, device);
  const bool keeps = device.type != DeviceType::cpu;
  if (const GemmPlan* found = keeps ? find_cached(description, device) : nullptr) return *found;
  auto impl = std::make_shared<GemmPlan::Impl>();
  impl->description = description;
  impl->device = device;
  impl->backend =
      &(description.autotune ? tunable_backend("plan_gemm", device) : gemm_backend(device));
  impl->backend->plan(*impl);
  GemmPlan plan(std::move(impl));
  if (keeps) cache({description, device, plan});
  return plan;
}

GemmPlan plan_gemm(const PackedWeights& w, GemmDescription description) {
  require<ShapeError>(!w.empty(), "plan_gemm: w is empty");
  description.n = w.rows();
  description.k = w.cols();
  description.groups = w.groups();
  return plan_gemm(description, w.device());
}

GemmTuning tune_gemm(const GemmDescription& description, Device device) {
  check_description("tune_gemm", description, device);
  require<ShapeError>(description.m > 0, "tune_gemm: m = {}, must be at least 1", description.m);
  require<ValueError>(description.kernel.empty(), "tune_gemm: kernel = '{}', must be empty",
                      description.kernel);
  require<ValueError>(
      description.arithmetic == Arithmetic::exact,
      "tune_gemm: arithmetic = fp8, must be exact: kernels of FP8 are not measured");
  GemmTuning tuning = tunable_backend("tune_gemm", device).tune(description, device);
  std::erase_if(cached_plans, [](const CachedPlan& k) { return k.description.autotune; });
  return tuning;
}

const GemmDescription& GemmPlan::description() const { return impl().description; }
Device GemmPlan::device() const { return impl().device; }
const std::string& GemmPlan::kernel() const { return impl().kernel; }
GemmTileShape GemmPlan::tile() const { return impl().tile; }
const GemmPlan::Impl& GemmPlan::impl() const {
  require<ValueError>(impl_ != nullptr, "GemmPlan: the plan is empty, must come from plan_gemm");
  return *impl_;
}
std::int64_t GemmPlan::workspace_bytes() const {
  return has_steps(impl()) ? sums_offset(impl()) + sums_bytes(impl().description)
                           : impl().workspace_bytes;
}

std::string to_string(const GemmPlan& plan) {
  if (plan.empty()) return "no plan";
  const GemmPlan::Impl& p = plan.impl();
  return fmt::format("{} on {}: {}{}, workspace {} bytes; {}{}{}", describe(p.description),
                     device_name(p.device), p.kernel, has_steps(p) ? ", then SwiGLU" : "",
                     plan.workspace_bytes(), p.backend->describe(p), p.tuned.empty() ? "" : "; ",
                     p.tuned);
}
std::ostream& operator<<(std::ostream& out, const GemmPlan& plan) { return out << to_string(plan); }

void run_gemm(const char* op, const GemmPlan& plan, const GemmArguments& arguments,
              std::span<std::byte> workspace, Stream stream, bool row_ends_settled) {
  const GemmPlan::Impl& p = plan.impl();
  check_arguments(op, plan, arguments, workspace);
  const GemmCall call{p, arguments, workspace, stream, row_ends_settled};
  if (has_steps(p))
    run_steps(call);
  else
    p.backend->run(call);
}

void gemm(const GemmPlan& plan, const GemmArguments& arguments, std::span<std::byte> workspace,
          Stream stream) {
  run_gemm("gemm", plan, arguments, workspace, stream, false);
}

}  // namespace nvfp4
