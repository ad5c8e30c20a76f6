#include "backends/cuda/rows_launch.cuh"

namespace nvfp4::cuda {

void launch_plain_rows(const RowArgs& a, DType dtype, Device device, Stream stream) {
  launch_kind<RowKind::plain>(a, dtype, device, stream);
}

}  // namespace nvfp4::cuda
