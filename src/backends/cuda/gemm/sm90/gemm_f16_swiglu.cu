#include "backends/cuda/gemm/sm90/dispatch.cuh"
#include "backends/cuda/gemm/sm90/launchers.h"

namespace nvfp4::cuda {

void sm90_gemm_f16_swiglu(const KernelConfig& kernel, const TensorMaps& maps,
                          const KernelArguments& p, int blocks, cudaStream_t stream) {
  dispatch<DType::f16, true>(kernel, maps, p, blocks, stream);
}

}  // namespace nvfp4::cuda
