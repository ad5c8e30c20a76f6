#include "backends/cuda/gemm/sm120/dispatch.cuh"
#include "backends/cuda/gemm/sm120/omma.cuh"

namespace nvfp4::cuda::sm120 {

void gemm_swiglu(const KernelConfig& kernel, const QuantizedX& x, const KernelArguments& p,
                 int blocks, cudaStream_t stream) {
  dispatch<Omma, true>(kernel, x, p, blocks, stream);
}

}  // namespace nvfp4::cuda::sm120
