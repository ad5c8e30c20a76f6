#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "backends/cuda/gemm/problem.h"

/// The kernels; each is in the .cu of its name, since they take long to compile.
namespace nvfp4::cuda {

/// Of x, and of out if whole tiles are stored by the copy engine: see fragment_gemm.cc.
struct TensorMaps {
  CUtensorMap x = {}, out = {};
};

void launch_gemm_bf16(const GemmTile& tile, const TensorMaps& maps, const FragmentGemm& p,
                      int blocks, cudaStream_t stream);
void launch_gemm_f16(const GemmTile& tile, const TensorMaps& maps, const FragmentGemm& p,
                     int blocks, cudaStream_t stream);

/// Those that end in SwiGLU.
void launch_swiglu_gemm_bf16(const GemmTile& tile, const TensorMaps& maps, const FragmentGemm& p,
                             int blocks, cudaStream_t stream);
void launch_swiglu_gemm_f16(const GemmTile& tile, const TensorMaps& maps, const FragmentGemm& p,
                            int blocks, cudaStream_t stream);

}  // namespace nvfp4::cuda
