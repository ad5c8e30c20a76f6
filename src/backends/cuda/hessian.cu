#include <algorithm>

#include "backends/cuda/hessian.cuh"
#include "backends/cuda/hessian.h"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {

template <DType kType>
void launch_hessian(const QuantizeArgs& a, cudaStream_t stream) {
  const QuantizedShape& s = a.out.shape;
  const dim3 grid(static_cast<unsigned>(s.blocks()),
                  static_cast<unsigned>(std::clamp<std::int64_t>(
                      ceil_div(s.vectors(), 4 * kHessianThreads), 1, 65535)));
  if (s.block == 16)
    hessian_kernel<kType, 16><<<grid, kHessianThreads, 0, stream>>>(a);
  else
    hessian_kernel<kType, 32><<<grid, kHessianThreads, 0, stream>>>(a);
}

template void launch_hessian<DType::f32>(const QuantizeArgs&, cudaStream_t);
template void launch_hessian<DType::bf16>(const QuantizeArgs&, cudaStream_t);
template void launch_hessian<DType::f16>(const QuantizeArgs&, cudaStream_t);

}  // namespace nvfp4::cuda
