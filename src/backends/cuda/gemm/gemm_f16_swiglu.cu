#include "backends/cuda/gemm/fragment_gemm.h"
#include "backends/cuda/gemm/launch.cuh"

namespace nvfp4::cuda {

void launch_swiglu_gemm_f16(const GemmTile& tile, const TensorMaps& maps, const FragmentGemm& p,
                            int blocks, cudaStream_t stream) {
  launch_tile<DType::f16, true>(tile, maps, p, blocks, stream);
}

}  // namespace nvfp4::cuda
