#include "backends/cuda/gemm/fragment_gemm.h"
#include "backends/cuda/gemm/launch.cuh"

namespace nvfp4::cuda {

void launch_gemm_f16(const GemmTile& tile, const TensorMaps& maps, const FragmentGemm& p,
                     int blocks, cudaStream_t stream) {
  launch_tile<DType::f16, false>(tile, maps, p, blocks, stream);
}

}  // namespace nvfp4::cuda
