#include "checkpoint/plan/weight_slices.h"

namespace nvfp4::checkpoint {

WeightSlice whole_weight(const LogicalTensor& t) {
  WeightSlice slice;
  slice.module = t.module();
  slice.cols = t.shape.empty() ? 1 : t.cols();
  slice.rows = slice.cols == 0 ? 0 : t.elements() / slice.cols;
  slice.row_stride = slice.cols;
  slice.amax_count = slice.rows * slice.cols;
  return slice;
}

std::vector<WeightSlice> transposed_matrices(const LogicalTensor& t) {
  std::vector<WeightSlice> slices;
  for (std::int64_t e = 0; e < t.matrices(); ++e) {
    WeightSlice& slice = slices.emplace_back();
    slice.module = t.module();
    slice.rows = t.cols();
    slice.cols = t.rows();
    slice.offset = e * slice.rows * slice.cols;
    slice.row_stride = 1;
    slice.col_stride = t.cols();
  }
  return slices;
}

bool keeps_stacks(const CheckpointFormat& format, const ModelConfig& config,
                  const LogicalTensor& t) {
  const bool fits =
      !t.is_nvfp4() || (t.transposed && t.globals.size() <= 1 && t.inputs.size() <= 1);
  return format.stack_tensors != nullptr && fits && exported_as_stacks(config);
}

}  // namespace nvfp4::checkpoint
