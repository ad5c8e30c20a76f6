#include "backends/cuda/gemm/fp8/mma_kernel.cuh"
#include "backends/cuda/gemm/fp8/stage.h"
#include "backends/cuda/gemm/launch_kernel.cuh"

namespace nvfp4::cuda::fp8 {
namespace {

__global__ void __launch_bounds__(MmaConfig::kThreads, 1)
    gemm_kernel(const __grid_constant__ KernelArguments p) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  multiply_tile(p, memory);
}

}  // namespace

void multiply_by_mma(const KernelArguments& p, int blocks, cudaStream_t stream) {
  launch_kernel<MmaConfig, &gemm_kernel>(p, blocks, MmaConfig::kSharedBytes, stream);
}

}  // namespace nvfp4::cuda::fp8
