#include "backends/cuda/rows_launch.cuh"

namespace nvfp4::cuda {

void launch_norm_rows(const RowArgs& a, DType dtype, Device device, Stream stream) {
  launch_kind<RowKind::norm>(a, dtype, device, stream);
}

}  // namespace nvfp4::cuda
