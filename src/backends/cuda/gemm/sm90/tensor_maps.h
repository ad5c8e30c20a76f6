#pragma once

#include <cuda.h>

#include "backends/cuda/gemm/arguments.h"

/// What TMA must know of x and out.
namespace nvfp4::cuda {

/// Of x, and of out if whole tiles are stored by TMA.
struct TensorMaps {
  CUtensorMap x = {}, out = {};
};

/// x [rows, groups · K] as [group][chunk][row][column]: one copy brings the same rows of several
/// chunks. If the last chunk is not whole, columns past the end of a group must not be read, so the
/// chunks are one long row, and a copy brings one of them.
CUtensorMap x_tensor_map(const MatrixView& x, std::int64_t k, const GemmArguments& p,
                         const KernelConfig& kernel);

/// out [rows, columns], as its warpgroups store it: boxes of so many rows and 64 columns,
/// or the 32 that SwiGLU makes of them.
CUtensorMap out_tensor_map(const MatrixSpan& out, int rows, bool swiglu);

}  // namespace nvfp4::cuda
