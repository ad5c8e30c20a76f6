#include "backends/cuda/rows_launch.cuh"

namespace nvfp4::cuda {

void launch_mixed_rows(const RowArgs& a, Stream stream) { launch_kind<RowKind::mix>(a, stream); }

}  // namespace nvfp4::cuda
