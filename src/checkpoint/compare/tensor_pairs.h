#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/compare/measured.h"
#include "checkpoint/source/quantized_tensors.h"
#include "nvfp4/checkpoint.h"

namespace nvfp4::checkpoint {

/// All of a tensor, or one expert's matrix inside a stack.
struct TensorSlice {
  const LogicalTensor* tensor = nullptr;
  /// For a matrix inside a stack: element (i, j) is at first + i · row_stride + j · col_stride.
  /// row_stride 0 means all of the tensor.
  std::int64_t first = 0, row_stride = 0, col_stride = 1;

  bool whole() const { return row_stride == 0; }
  /// Elements [begin, begin + out.size()); whole rows of `cols` elements unless whole().
  void read(std::int64_t begin, std::int64_t cols, std::span<float> out) const;
};

/// The same weights in both checkpoints.
struct TensorPair {
  std::string name;
  std::vector<std::int64_t> shape;
  TensorSlice a, b;
};

struct TensorPairs {
  std::vector<TensorPair> pairs;
  std::vector<std::string> only_in_a, only_in_b, shape_mismatch;
};

/// Pairs tensors by name. Experts that one side stacks in 3-D tensors ("experts.gate_up_proj") and
/// the other stores one by one ("experts.0.gate_proj.weight") are paired too, as quantization
/// takes them apart.
TensorPairs pair_tensors(const CheckpointReader& a, const CheckpointReader& b);

/// What compare_checkpoints() says of two that are open. Takes the lists of names out of `pairs`.
CompareReport compare_pairs(const CheckpointReader& a, const CheckpointReader& b,
                            TensorPairs& pairs, Measured& measured,
                            const std::function<void(const Progress&)>& progress);

}  // namespace nvfp4::checkpoint
