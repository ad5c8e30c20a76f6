#include "backends/cuda/rows_launch.cuh"

namespace nvfp4::cuda {

void launch_swiglu_rows(const RowArgs& a, Stream stream) {
  launch_kind<RowKind::swiglu>(a, stream);
}

}  // namespace nvfp4::cuda
