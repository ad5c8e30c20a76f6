#include "backends/cuda/gemm/sm120/dispatch.cuh"
#include "sm120/omma_twin.cuh"
#include "sm120/twin/twin.h"

namespace nvfp4::cuda::sm120 {

void twin_gemm_swiglu(const KernelConfig& kernel, const QuantizedX& x, const KernelArguments& p,
                      int blocks, cudaStream_t stream) {
  dispatch<OmmaTwin, true>(kernel, x, p, blocks, stream);
}

}  // namespace nvfp4::cuda::sm120
