#include "backends/cuda/gemm/sm120/launch.h"

#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/make_arguments.h"
#include "backends/cuda/gemm/sm120/launchers.h"
#include "backends/cuda/gemm/sm80/launch.h"
#include "backends/cuda/runtime.h"
#include "core/device_memory.h"
#include "core/require.h"

namespace nvfp4::cuda::sm120 {
namespace {

QuantizedX quantized_x_of(const QuantizedView& x) {
  const QuantizedShape& s = x.shape;
  require<ShapeError>(reinterpret_cast<std::uintptr_t>(x.scales) % 4 == 0,
                      "gemm: x.scales = {}, must be aligned to 4 bytes",
                      static_cast<const void*>(x.scales));
  return {.codes = x.codes,
          .scales = x.scales,
          .row_bytes = s.cols / 2,
          .scale_step = scale_offset(s.layout, 0, 4, s.rows, s.blocks()),
          .layout = s.layout,
          .rows = static_cast<int>(s.rows),
          .blocks = static_cast<int>(s.blocks())};
}

/// Copies the cases to the device, multiplies them and copies them back.
[[maybe_unused]] void multiply_on(Device device, std::span<Fp4Case> cases, int a_thread,
                                  int b_thread, CasesLauncher* launcher) {
  const Current current(device);
  const auto bytes = static_cast<std::int64_t>(cases.size_bytes());
  const Buffer memory(bytes, device);
  device_copy(device, memory.data(), bytes, {}, cases.data(), bytes, bytes, 1, {});
  launcher(static_cast<Fp4Case*>(memory.data()), static_cast<int>(cases.size()), a_thread, b_thread,
           nullptr);
  device_copy({}, cases.data(), bytes, device, memory.data(), bytes, bytes, 1, {});
  check(cudaDeviceSynchronize(), "multiply_fp4");
}

void launch_by(Launcher* launcher, const KernelPlan& plan, const FragmentGemmJob& job,
               std::span<std::byte> workspace) {
  const QuantizedX x = quantized_x_of(*job.quantized_x);
  KernelArguments p = arguments_of(job);
  p.factor /= kFragmentUnit;  // these sums have unit 1
  const int blocks = sm80::set_grid(p, plan, job, workspace);
  if (blocks > 0) launcher(plan.parts[0].kernel, x, p, blocks, stream_of(job.stream));
}

}  // namespace

const Fp4Instruction* fp4_instruction([[maybe_unused]] int compute_major) {
#ifdef NVFP4_WITH_OMMA
  static constexpr Fp4Instruction kInstruction{
      .name = "mma.m16n8k64", .multiply = [](auto cases, int a, int b, Device device) {
        multiply_on(device, cases, a, b, multiply_cases);
      }};
  if (compute_major == 12) return &kInstruction;
#endif
#ifdef NVFP4_WITH_OMMA_TWIN
  static constexpr Fp4Instruction kTwin{.name = "mma.m16n8k64 in software",
                                        .in_software = true,
                                        .multiply = [](auto cases, int a, int b, Device device) {
                                          multiply_on(device, cases, a, b, twin_multiply_cases);
                                        }};
  if (compute_major == 9) return &kTwin;
#endif
  return nullptr;
}

#ifdef NVFP4_WITH_OMMA
void launch(const KernelPlan& plan, const FragmentGemmJob& job, std::span<std::byte> workspace) {
  launch_by(plan.problem.swiglu ? gemm_swiglu : gemm, plan, job, workspace);
}
#endif
#ifdef NVFP4_WITH_OMMA_TWIN
void launch_twin(const KernelPlan& plan, const FragmentGemmJob& job,
                 std::span<std::byte> workspace) {
  launch_by(plan.problem.swiglu ? twin_gemm_swiglu : twin_gemm, plan, job, workspace);
}
#endif

}  // namespace nvfp4::cuda::sm120
