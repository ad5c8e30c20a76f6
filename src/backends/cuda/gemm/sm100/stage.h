#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/gemm/arguments.h"
#include "nvfp4/quantize.h"

/// The kernels before and after a GEMM of the library.
namespace nvfp4::cuda::sm100 {

/// Copies the scales of blocks [first, first + blocks) of x to tiled_128x4, with zeros as padding.
void tile_scales(const QuantizedView& x, std::int64_t first, std::int64_t blocks, std::uint8_t* to,
                 cudaStream_t stream);

/// Stores the product of all factors of a group in to[0], and 0 in to[1]. No factor may differ
/// between rows.
void set_factors(const KernelArguments& p, int group, float* to, cudaStream_t stream);

/// Applies factors and bias to sums[m, n] of a group and stores its columns of out. n % 4 must be
/// 0.
void finish(const KernelArguments& p, int group, const float* sums, cudaStream_t stream);

}  // namespace nvfp4::cuda::sm100
