#pragma once

#include "backends/cuda/quantize.cuh"

namespace nvfp4::cuda {

/// Runs quantize with args.hessian, see hessian.cu.
template <DType kType>
void launch_hessian(const QuantizeArgs& a, cudaStream_t stream);

}  // namespace nvfp4::cuda
