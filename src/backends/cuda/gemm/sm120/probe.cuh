#pragma once

#include "backends/cuda/gemm/sm120/fp4_case.cuh"
#include "backends/cuda/runtime.h"

/// Runs the instruction alone, a warp for each case, for the selftest.
namespace nvfp4::cuda::sm120 {

template <class Product, int kA, int kB>
__global__ void __launch_bounds__(32) multiply_cases(Fp4Case* cases) {
  multiply_case<Product, kA, kB>(cases[blockIdx.x], static_cast<int>(threadIdx.x));
}

/// Returns the kernel for two thread ids.
template <class Product>
auto* cases_kernel(int a_thread, int b_thread) {
  using Kernel = void(Fp4Case*);
  static constexpr Kernel* kKernels[2][4] = {
      {multiply_cases<Product, 0, 0>, multiply_cases<Product, 0, 1>, multiply_cases<Product, 0, 2>,
       multiply_cases<Product, 0, 3>},
      {multiply_cases<Product, 1, 0>, multiply_cases<Product, 1, 1>, multiply_cases<Product, 1, 2>,
       multiply_cases<Product, 1, 3>}};
  return kKernels[a_thread][b_thread];
}

/// Launches a warp for each case. `cases` are on the GPU.
template <class Product>
void launch_cases(Fp4Case* cases, int count, int a_thread, int b_thread, cudaStream_t stream) {
  cases_kernel<Product>(a_thread, b_thread)<<<static_cast<unsigned>(count), 32, 0, stream>>>(cases);
  check(cudaGetLastError(), "multiply_fp4: kernel launch");
}

}  // namespace nvfp4::cuda::sm120
