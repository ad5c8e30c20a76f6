// Runs the FP4 instruction of compute capability 12.x alone, a warp for each case.
#include "backends/cuda/gemm/sm120/omma.cuh"
#include "backends/cuda/runtime.h"
#include "core/device_memory.h"
#include "selftest/fp4_case.cuh"
#include "selftest/fp4_instruction.h"

namespace nvfp4::selftest {
namespace {

using cuda::sm120::Omma;

template <int kA, int kB>
__global__ void __launch_bounds__(32) multiply_cases(Fp4Case* cases) {
  multiply_case<Omma, kA, kB>(cases[blockIdx.x], static_cast<int>(threadIdx.x));
}

/// The kernels for the thread ids of A and B.
constexpr void (*kKernels[2][4])(Fp4Case*) = {
    {multiply_cases<0, 0>, multiply_cases<0, 1>, multiply_cases<0, 2>, multiply_cases<0, 3>},
    {multiply_cases<1, 0>, multiply_cases<1, 1>, multiply_cases<1, 2>, multiply_cases<1, 3>}};

}  // namespace

bool has_fp4_instruction(Device device) { return cuda::compute_major(device) == 12; }

void multiply_fp4(Device device, std::span<Fp4Case> cases, int a_thread, int b_thread) {
  const cuda::Current current(device);
  const auto bytes = static_cast<std::int64_t>(cases.size_bytes());
  const Buffer memory(bytes, device);
  device_copy(device, memory.data(), bytes, {}, cases.data(), bytes, bytes, 1, {});
  kKernels[a_thread][b_thread]<<<static_cast<unsigned>(cases.size()), 32>>>(
      static_cast<Fp4Case*>(memory.data()));
  cuda::check(cudaGetLastError(), "multiply_fp4: kernel launch");
  device_copy({}, cases.data(), bytes, device, memory.data(), bytes, bytes, 1, {});
  cuda::check(cudaDeviceSynchronize(), "multiply_fp4");
}

}  // namespace nvfp4::selftest
