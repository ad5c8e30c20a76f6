#include "backends/cuda/rows_launch.cuh"

namespace nvfp4::cuda {

void launch_swiglu_rows(const RowArgs& a, DType dtype, Device device, Stream stream) {
  launch_kind<RowKind::swiglu>(a, dtype, device, stream);
}

}  // namespace nvfp4::cuda
