#include "backends/cuda/gemm/sm80/dispatch.cuh"
#include "backends/cuda/gemm/sm80/launchers.h"

namespace nvfp4::cuda::sm80 {

void gemm_f16(const KernelConfig& kernel, const KernelArguments& p, int blocks,
              cudaStream_t stream) {
  dispatch<DType::f16, false>(kernel, p, blocks, stream);
}

}  // namespace nvfp4::cuda::sm80
