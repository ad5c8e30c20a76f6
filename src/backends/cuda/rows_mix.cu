#include "backends/cuda/rows_launch.cuh"

namespace nvfp4::cuda {

void launch_mix_rows(const RowArgs& a, DType dtype, Device device, Stream stream) {
  launch_kind<RowKind::mix>(a, dtype, device, stream);
}

}  // namespace nvfp4::cuda
