#include "backends/cuda/rows_launch.cuh"

namespace nvfp4::cuda {

void launch_plain_rows(const RowArgs& a, Stream stream) { launch_kind<RowKind::plain>(a, stream); }

}  // namespace nvfp4::cuda
