#include "checkpoint/plan/weight_slices.h"

#include "checkpoint/plan/plan.h"

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

std::vector<OutputTensor> stack_outputs(const Plan& plan, Scheme scheme, const LogicalTensor& t,
                                        Unit& unit) {
  const std::int64_t rows = unit.slice.rows, cols = unit.slice.cols;
  unit.stack_rows = rows;
  if (plan.units.size() == plan.tensors.back().first_unit)
    return plan.format->stack_tensors(scheme, t.module(), t.matrices(), rows, cols);
  const Unit& before = plan.units.back();
  unit.codes = before.codes;
  unit.scales = before.scales;
  unit.weight_global = before.weight_global;
  unit.input_global = before.input_global;
  unit.out_begin = before.out_begin + rows * cols;
  return {};
}

}  // namespace nvfp4::checkpoint
