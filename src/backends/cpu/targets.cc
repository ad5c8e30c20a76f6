#include "hwy/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <string>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels.h"
#include "hwy/highway.h"

namespace nvfp4::cpu {
namespace {

/// The targets, best first. Highway's finer targets share a name.
constexpr Target kTargets[] = {
#if HWY_ARCH_X86
    {HWY_AVX3_DL, "cpu-amx", "AVX-512 with VNNI and VBMI, and AMX with BF16", fill_amx},
    {HWY_AVX3_DL, "cpu-avx512bf16", "AVX-512 with VNNI, VBMI and BF16", fill_bf16},
#ifdef HWY_AVX3_SPR
    {HWY_AVX3_SPR, "cpu-avx512vnni", "AVX-512 with VNNI and VBMI"},
#endif
#ifdef HWY_AVX3_ZEN4
    {HWY_AVX3_ZEN4, "cpu-avx512vnni", "AVX-512 with VNNI and VBMI"},
#endif
    {HWY_AVX3_DL, "cpu-avx512vnni", "AVX-512 with VNNI and VBMI"},
    {HWY_AVX3, "cpu-avx512", "AVX-512 (F, BW, DQ, VL, CD)"},
    {HWY_AVX2, "cpu-avx2", "AVX2, FMA, F16C and BMI2"},
    {HWY_SSE4, "cpu-sse4", "SSE4.2, PCLMUL and AES"},
#elif HWY_ARCH_ARM
    {HWY_NEON, "cpu-neon", "NEON and AES"},
#endif
};

/// Returns the kernels of a target, or null. Highway chooses by the CPU's features, so this target
/// is set as the only one while the tables are filled.
const Backend* kernels_of(const Target& t) {
  hwy::SetSupportedTargetsForTest(t.highway);
  hwy::GetChosenTarget().Update(t.highway);
  static std::deque<Backend> tables;  // a deque keeps their addresses
  Backend backend = {};
  backend.name = t.name;
  backend.description = t.needs;
  const bool ok = fill(backend) && (t.fill == nullptr || t.fill(backend));
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return ok ? &tables.emplace_back(backend) : nullptr;
}

auto entry_named(std::vector<BackendEntry>& list, std::string_view name) {
  return std::ranges::find(list, name, [](const BackendEntry& e) { return e.info.name; });
}

void add(std::vector<BackendEntry>& list, const Target& t) {
  const std::int64_t here = hwy::SupportedTargets() & HWY_TARGETS;
  const auto same = entry_named(list, t.name);
  if (same != list.end() && same->backend != nullptr) return;
  BackendEntry e{nullptr, {t.name, false, fmt::format("this CPU lacks {}", t.needs), t.needs}};
  if ((HWY_TARGETS & t.highway) == 0) {
    if (same == list.end() && t.highway != HWY_TARGETS)
      e.info.reason = fmt::format("built without {}", t.needs);
  } else if ((here & t.highway) != 0) {
    e.backend = kernels_of(t);
    e.info.available = e.backend != nullptr;
    if (e.backend != nullptr)
      e.info.reason.clear();
    else if (t.fill == nullptr)
      e.info.reason = "no kernels for this target";
  }
  if (same != list.end())
    *same = e;
  else
    list.push_back(e);
}

std::vector<BackendEntry> all_of_this_build() {
  std::vector<BackendEntry> list;
  for (const Target& t : kTargets) add(list, t);
#if HWY_ARCH_X86
  // AMX is fastest. AMD multiplies BF16 at twice the rate of FP32, Intel at half of it.
  if (!__builtin_cpu_is("amd"))
    std::iter_swap(entry_named(list, "cpu-avx512bf16"), entry_named(list, "cpu-avx512vnni"));
#endif
  const auto best =
      std::ranges::find_if(list, [](const BackendEntry& e) { return e.backend != nullptr; });
  BackendEntry cpu{nullptr, {"cpu", false, "this CPU has none of the SIMD targets", {}}};
  cpu.info.description = "the best SIMD target";
  if (best != list.end()) cpu = {best->backend, {"cpu", true, "", best->info.description}};
  list.insert(list.begin(), cpu);
  return list;
}

std::vector<BackendEntry>& entries() {
  static std::vector<BackendEntry> all = all_of_this_build();
  return all;
}

}  // namespace

std::span<const Target> targets() { return kTargets; }

const std::vector<BackendEntry>& backends() { return entries(); }

AddedTarget::AddedTarget(const Target& target) { add(entries(), target); }
AddedTarget::~AddedTarget() { entries().pop_back(); }

}  // namespace nvfp4::cpu
