#include "backends/cuda/gemm/sm90/dispatch.cuh"
#include "backends/cuda/gemm/sm90/launchers.h"

namespace nvfp4::cuda {

void sm90_gemm_f16(const KernelConfig& kernel, const TensorMaps& maps, const KernelArguments& p,
                   int blocks, cudaStream_t stream) {
  dispatch<DType::f16, false>(kernel, maps, p, blocks, stream);
}

}  // namespace nvfp4::cuda
