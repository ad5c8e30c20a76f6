#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/quantized_tensors.h"

namespace nvfp4::checkpoint {

/// A matrix inside a tensor: all of it, or one expert's part of a stack.
struct TensorSlice {
  const LogicalTensor* tensor = nullptr;
  std::int64_t first = 0;  ///< element at which it starts
  /// 0: row-major and contiguous. Else the slice is stored transposed: its rows are this far from
  /// each other's columns, that is element (i, j) is at first + j · transposed_stride + i.
  std::int64_t transposed_stride = 0;

  /// Elements [begin, begin + out.size()) of the slice whose rows are `cols` long.
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

/// Pairs tensors by name. Experts that one side stacks in 3-D tensors ("experts.gate_up_proj",
/// either way round) and the other stores one by one ("experts.0.gate_proj.weight") are paired too.
TensorPairs pair_tensors(const CheckpointReader& a, const CheckpointReader& b);

}  // namespace nvfp4::checkpoint
