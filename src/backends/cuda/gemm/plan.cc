#include "backends/cuda/gemm/plan.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <memory>

#include "core/device_memory.h"
#include "core/require.h"

namespace nvfp4::cuda {
namespace {

std::string_view mainloop_name(MainloopKind mainloop) {
  switch (mainloop) {
    case MainloopKind::wgmma:
      return "wgmma";
    case MainloopKind::small_m:
    case MainloopKind::mma:
      return "mma";
    case MainloopKind::cublaslt:
      return "cublaslt";
    case MainloopKind::routed:
      break;
  }
  return "routed";
}

/// A field of a name after the tile, and its default.
struct NamedField {
  std::string_view name;
  int KernelConfig::*field;
  int usual;
};
constexpr NamedField kNamedFields[] = {
    {"_splitk", &KernelConfig::split_k, 1},
    {"_dependents", &KernelConfig::launch_dependents_step, 0},
    {"_prefetch", &KernelConfig::prefetch_stages, kAllStages},
    {"_streamk", &KernelConfig::stream_k_steps, 0},
};

/// Removes `word` and the number after it from the front of `text`.
bool take(std::string_view& text, std::string_view word, int& number) {
  if (!text.starts_with(word)) return false;
  const char* const first = text.data() + word.size();
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

/// Parses the name of a kernel of this architecture. Returns false if the form is wrong.
bool parse(std::string_view name, const Architecture& architecture, KernelConfig& kernel) {
  if (!name.starts_with(architecture.name)) return false;
  name.remove_prefix(architecture.name.size());
  const std::size_t tile = name.find("_m", 1);
  // "_mma" also starts with "_m".
  const std::size_t at = name.starts_with("_mma") ? name.find("_m", 4) : tile;
  if (at == std::string_view::npos) return false;
  name.remove_prefix(at);
  int k = 0;
  if (!take(name, "_m", kernel.m) || !take(name, "n", kernel.n) || !take(name, "k", k))
    return false;
  for (const NamedField& f : kNamedFields) take(name, f.name, kernel.*f.field);
  return name.empty();
}

void require_kernel(const KernelProblem& problem, const KernelConfig& kernel,
                    const Architecture& architecture) {
  require<ValueError>(find_kernel(architecture.kernels, kernel) != nullptr,
                      "gemm: kernel = m {}, n {}, split_k {} does not exist on {}", kernel.m,
                      kernel.n, kernel.split_k, architecture.name);
  for (const NamedField& f : kNamedFields)
    require<ValueError>(kernel.*f.field >= 0, "gemm: kernel{} = {} must not be negative", f.name,
                        kernel.*f.field);
  const std::string reason = architecture.why_impossible(problem, kernel);
  require<ValueError>(reason.empty(), "gemm: kernel = {} {}", kernel_name(kernel, architecture),
                      reason);
}

/// The size of the stream-K flags at the start of a workspace. They stay zero whatever plans share
/// the workspace.
constexpr std::int64_t kFlagBytes = 4096;

std::int64_t workspace_bytes(const KernelPlan& plan) {
  std::int64_t bytes = 0;
  for (const PlanPart& part : plan.parts) {
    if (part.rows == 0) break;
    KernelProblem of_part = plan.problem;
    of_part.m = part.rows;
    bytes = std::max(bytes, plan.architecture->workspace_bytes(of_part, part.kernel));
  }
  return bytes;
}

}  // namespace

const Architecture& find_architecture(const Capability& capability,
                                      std::span<const Architecture* const> among) {
  std::string names;
  for (const Architecture* a : among) {
    if (a->supports(capability)) return *a;
    names += names.empty() ? "" : ", ";
    names += a->name;
  }
  throw UnsupportedError(
      fmt::format("gemm: the GPU is sm_{}{}, GEMMs with fragments_64x64 weights run on {} only",
                  capability.major, capability.minor, names));
}

const Architecture& find_architecture(const KernelProblem& problem, const Capability& capability,
                                      std::span<const Architecture* const> among) {
  std::string reason;
  const Architecture* best = nullptr;
  double least = 0;
  for (const Architecture* a : among) {
    if (!a->supports(capability)) continue;
    const std::string why = a->why_none == nullptr ? "" : a->why_none(problem);
    if (!why.empty()) {
      reason = fmt::format("gemm: the kernels of {} {}", a->name, why);
      continue;
    }
    if (best == nullptr && (a->time == nullptr || problem.batch_invariant)) return *a;
    if (a->time == nullptr) continue;
    const double time = a->time(problem, capability);
    if (best != nullptr && time >= least) continue;
    best = a;
    least = time;
  }
  if (best != nullptr) return *best;
  if (reason.empty()) return find_architecture(capability, among);
  throw UnsupportedError(reason);
}

std::span<const Architecture* const> architectures_named(std::string_view name) {
  const std::span<const Architecture* const> all = architectures();
  if (name.empty()) return all;
  const auto found = std::ranges::find(all, name, &Architecture::name);
  if (found != all.end()) return {std::to_address(found), 1};
  std::string names;
  for (const Architecture* a : all)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", a->name);
  throw ValueError(
      fmt::format("NVFP4_GEMM_ARCHITECTURE = \"{}\" names no architecture: {}", name, names));
}

KernelPlan plan_kernels(const KernelProblem& problem, const Capability& capability, bool stream_k,
                        std::span<const Architecture* const> among) {
  KernelPlan plan{.problem = problem};
  plan.problem.multiprocessors = capability.multiprocessors;
  plan.problem.stream_k = stream_k;
  plan.architecture = &find_architecture(plan.problem, capability, among);
  plan.parts = plan.architecture->choose(plan.problem);
  plan.workspace_bytes = workspace_bytes(plan);
  return plan;
}

KernelPlan plan_kernels(const KernelProblem& problem, const Capability& capability,
                        const KernelConfig& kernel, std::span<const Architecture* const> among) {
  KernelPlan plan{.problem = problem};
  plan.problem.multiprocessors = capability.multiprocessors;
  plan.problem.stream_k = kernel.stream_k_steps != 0;
  plan.architecture = &find_architecture(plan.problem, capability, among);
  require_kernel(plan.problem, kernel, *plan.architecture);
  plan.parts = {{{problem.m, kernel}, {}}};
  plan.workspace_bytes = workspace_bytes(plan);
  return plan;
}

std::int64_t staging_offset(const KernelPlan& plan) {
  return round_up(std::max(plan.workspace_bytes, kFlagBytes), kDeviceAlignment);
}

std::int64_t call_workspace_bytes(const KernelPlan& plan, std::int64_t dequantized_x_bytes) {
  const Architecture& a = *plan.architecture;
  const std::int64_t staging =
      a.staging_bytes != nullptr ? a.staging_bytes(plan.problem) : dequantized_x_bytes;
  return staging > 0 ? staging_offset(plan) + staging : plan.workspace_bytes;
}

std::vector<KernelConfig> kernel_configs(std::span<const Kernel> kernels) {
  std::vector<KernelConfig> configs;
  for (const Kernel& k : kernels)
    for (int split_k = 1; split_k <= k.split_k; split_k *= 2)
      if ((k.split_k & split_k) != 0) configs.push_back({k.m, k.n, split_k});
  return configs;
}

std::vector<std::string> kernel_names(const Capability& capability,
                                      std::span<const Architecture* const> among) {
  std::vector<std::string> names;
  for (const Architecture* a : among)
    if (a->supports(capability))
      for (const KernelConfig& kernel : kernel_configs(a->kernels))
        names.push_back(kernel_name(kernel, *a));
  return names;
}

std::string kernel_name(const KernelConfig& kernel, const Architecture& architecture) {
  const Kernel* const found = find_kernel(architecture.kernels, kernel);
  require<ValueError>(found != nullptr, "gemm: kernel = m {}, n {}, split_k {} does not exist",
                      kernel.m, kernel.n, kernel.split_k);
  std::string name =
      fmt::format("{}_{}_m{}n{}k{}", architecture.name, mainloop_name(found->mainloop), kernel.m,
                  kernel.n, architecture.stage_k(kernel));
  for (const NamedField& f : kNamedFields)
    if (kernel.*f.field != f.usual) name += fmt::format("{}{}", f.name, kernel.*f.field);
  return name;
}

std::string kernel_name(const KernelConfig& kernel) {
  for (const Architecture* a : architectures())
    if (find_kernel(a->kernels, kernel) != nullptr) return kernel_name(kernel, *a);
  return kernel_name(kernel, *architectures().front());
}

KernelConfig kernel_config(std::string_view name, std::span<const Architecture* const> among) {
  const Architecture& a = architecture_of(name, among);
  KernelConfig kernel;
  parse(name, a, kernel);
  return kernel;
}

const Architecture& architecture_of(std::string_view kernel,
                                    std::span<const Architecture* const> among) {
  for (const Architecture* a : among) {
    KernelConfig config;
    // A kernel has exactly one name.
    if (parse(kernel, *a, config) && find_kernel(a->kernels, config) != nullptr &&
        kernel_name(config, *a) == kernel)
      return *a;
  }
  throw ValueError(fmt::format(
      "gemm: kernel = \"{}\", must be the name of a kernel, such as \"{}\"", kernel,
      among.empty() ? ""
                    : kernel_name(kernel_configs(among.front()->kernels).back(), *among.front())));
}

std::string describe(const KernelPlan& plan) {
  std::string text;
  for (const PlanPart& part : plan.parts) {
    if (part.rows == 0) break;
    KernelProblem of_part = plan.problem;
    of_part.m = part.rows;
    const Architecture& a = *plan.architecture;
    text += fmt::format("{} rows: {}, {} blocks; {}\n", part.rows, kernel_name(part.kernel, a),
                        a.grid(of_part, part.kernel), a.summation(of_part, part.kernel));
  }
  return text + fmt::format("workspace: {} bytes", plan.workspace_bytes);
}

}  // namespace nvfp4::cuda
