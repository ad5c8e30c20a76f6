#include "hwy/targets.h"

#include <algorithm>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels.h"
#include "hwy/highway.h"

namespace nvfp4::cpu {
namespace {

struct Name {
  std::int64_t target;
  const char *name, *needs;
  bool (*fill)(Backend& backend) = nullptr;  ///< kernels that multiply BF16
};
/// Best first. Highway's finer targets answer to the same name.
constexpr Name kNames[] = {
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

/// The kernels of one target, or null. Highway picks by what it believes the CPU has, so it is
/// told to believe in this target alone while the tables are read.
const Backend* kernels_of(const Name& n) {
  hwy::SetSupportedTargetsForTest(n.target);
  hwy::GetChosenTarget().Update(n.target);
  static Backend tables[std::size(kNames) + 1];
  static std::size_t used = 0;
  Backend& backend = tables[used];
  backend = {};
  backend.name = n.name;
  backend.description = n.needs;
  const bool ok = fill_encode(backend) && fill_decode(backend) && fill_measure(backend) &&
                  fill_rows(backend) && fill_gram(backend) && fill_gptq(backend) &&
                  fill_subtract_product(backend) && fill_w4a4(backend) && fill_w4a16(backend) &&
                  fill_digits(backend) && (n.fill == nullptr || n.fill(backend));
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  if (!ok) return nullptr;
  ++used;
  return &backend;
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> list;
    const std::int64_t here = hwy::SupportedTargets() & HWY_TARGETS;
    for (const Name& n : kNames) {
      const auto same =
          std::find_if(list.begin(), list.end(), [&](const Target& t) { return t.name == n.name; });
      if (same != list.end() && same->backend != nullptr) continue;
      Target t{n.name, nullptr, std::string("this CPU lacks ") + n.needs, n.needs};
      if ((HWY_TARGETS & n.target) == 0) {
        if (same == list.end() && n.target != HWY_TARGETS)
          t.reason = std::string("built without ") + n.needs;
      } else if ((here & n.target) != 0) {
        t.backend = kernels_of(n);
        if (t.backend != nullptr)
          t.reason.clear();
        else if (n.fill == nullptr)
          t.reason = "no kernels for this target";
      }
      if (same != list.end())
        *same = t;
      else
        list.push_back(t);
    }
#if HWY_ARCH_X86
    // AMX is the fastest. AMD multiplies BF16 at twice the rate of FP32, Intel at half of it.
    if (!__builtin_cpu_is("amd")) std::rotate(list.begin() + 1, list.begin() + 2, list.begin() + 3);
#endif
    const auto best = std::find_if(list.begin(), list.end(),
                                   [](const Target& t) { return t.backend != nullptr; });
    Target cpu{"cpu", nullptr, "this CPU has none of the SIMD targets", "the best SIMD target"};
    if (best != list.end()) {
      cpu.backend = best->backend;
      cpu.reason.clear();
      cpu.description = best->description;
    }
    list.insert(list.begin(), cpu);
    return list;
  }();
  return all;
}

}  // namespace nvfp4::cpu
