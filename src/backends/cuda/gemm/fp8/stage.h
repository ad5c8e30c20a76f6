#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/gemm/arguments.h"

/// The kernels that quantize x and decode W, and the GEMM by mma.sync.
namespace nvfp4::cuda::fp8 {

/// Rounds the rows of x, BF16 or FP16, to E4M3 [rows, cols]. Rows start at multiples of 16 bytes.
void quantize_rows(const MatrixView& x, std::uint8_t* codes, float* factors, cudaStream_t stream);

/// W [n, k] as E4M3. codes · powers is W without global scales; `factors` includes all of them.
struct StagedWeights {
  std::uint8_t* codes = nullptr;
  float* powers = nullptr;
  float* factors = nullptr;
  std::uint16_t* bias = nullptr;  ///< in the type of out; unused without a bias
};
/// Decodes the packed weights of group 0.
void decode_weights(const KernelArguments& p, const StagedWeights& to, cudaStream_t stream);

/// Multiplies by mma.sync. p.x and p.weights are E4M3, p.x_global and p.w_global their factors.
void multiply_by_mma(const KernelArguments& p, int blocks, cudaStream_t stream);

}  // namespace nvfp4::cuda::fp8
