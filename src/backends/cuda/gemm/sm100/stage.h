#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/gemm/arguments.h"
#include "nvfp4/quantize.h"

/// What is done before and after a product of the library.
namespace nvfp4::cuda::sm100 {

/// Block scales of columns [first, first + blocks) of x, in blocks -> tiled_128x4, zeros between.
void tile_scales(const QuantizedView& x, std::int64_t first, std::int64_t blocks, std::uint8_t* to,
                 cudaStream_t stream);

/// The product of all factors of a group -> to[0], 0 -> to[1]: where none differs from row to row.
void set_factors(const GemmArguments& p, int group, float* to, cudaStream_t stream);

/// sums[m, n] of a group, times their factors, with bias -> its columns of out. N % 4 == 0.
void finish(const GemmArguments& p, int group, const float* sums, cudaStream_t stream);

}  // namespace nvfp4::cuda::sm100
