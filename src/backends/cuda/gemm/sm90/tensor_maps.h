#pragma once

#include <cuda.h>

#include "backends/cuda/gemm/arguments.h"

/// TMA descriptors of x and out.
namespace nvfp4::cuda {

/// The maps of x, and of out if whole tiles are stored by TMA.
struct TensorMaps {
  CUtensorMap x = {}, out = {};
};

/// Returns a map of x [rows, groups · K] as [group][chunk][row][column]: one copy fetches the same
/// rows of several chunks. If K is no multiple of 64, a copy must not read past the end of a group.
/// Then the chunks are one long row, and one copy fetches one chunk.
CUtensorMap x_tensor_map(const MatrixView& x, std::int64_t k, const KernelArguments& p,
                         const KernelConfig& kernel);

/// Returns a map of out [rows, columns] in boxes of `rows` rows and 64 columns, or 32 columns with
/// SwiGLU.
CUtensorMap out_tensor_map(const MatrixSpan& out, int rows, bool swiglu);

}  // namespace nvfp4::cuda
