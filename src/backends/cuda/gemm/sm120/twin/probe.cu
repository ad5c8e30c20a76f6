#include "backends/cuda/gemm/sm120/launchers.h"
#include "backends/cuda/gemm/sm120/omma_twin.cuh"
#include "backends/cuda/gemm/sm120/probe.cuh"

namespace nvfp4::cuda::sm120 {

void twin_multiply_cases(Fp4Case* cases, int count, int a_thread, int b_thread,
                         cudaStream_t stream) {
  launch_cases<OmmaTwin>(cases, count, a_thread, b_thread, stream);
}

}  // namespace nvfp4::cuda::sm120
