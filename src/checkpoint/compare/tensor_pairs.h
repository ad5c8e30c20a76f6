#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/compare/measured.h"
#include "checkpoint/source/quantized_tensors.h"
#include "nvfp4/checkpoint/checkpoint.h"

namespace nvfp4::checkpoint {

/// A whole tensor, or one expert's matrix in a stack.
struct TensorSlice {
  const LogicalTensor* tensor = nullptr;
  /// The place of a matrix in a stack: element (i, j) is at first + i · row_stride + j ·
  /// col_stride. If row_stride is 0, the slice is the whole tensor.
  std::int64_t first = 0, row_stride = 0, col_stride = 1;

  bool whole() const { return row_stride == 0; }
  /// Reads elements [begin, begin + out.size()). Unless whole(), they are whole rows of `cols`
  /// elements.
  void read(std::int64_t begin, std::int64_t cols, std::span<float> out) const;
};

/// The smallest and the largest maximum of a block that is not zero. Both are 0 if there is none.
struct BlockRange {
  float smallest = 0, largest = 0;

  void add(const BlockRange& other) {
    if (other.largest == 0) return;
    smallest = largest == 0 ? other.smallest : std::min(smallest, other.smallest);
    largest = std::max(largest, other.largest);
  }
};

/// The same weight in both checkpoints.
struct TensorPair {
  std::string name;
  std::vector<std::int64_t> shape;
  TensorSlice a, b;
  /// Ranges of the blocks of `a` under each global scale of `b`, from `first_global` on.
  /// compare_pairs() sets them if `b`, and not `a`, is NVFP4 without a scale for each row.
  std::vector<BlockRange> blocks = {};
  std::size_t first_global = 0;
};

struct TensorPairs {
  std::vector<TensorPair> pairs;
  std::vector<std::string> only_in_a, only_in_b, shape_mismatch;
};

/// Pairs tensors by name. A stack of experts ("experts.gate_up_proj") is split as in quantization.
/// Its experts are paired with single experts of the other side ("experts.0.gate_proj.weight").
TensorPairs pair_tensors(const CheckpointReader& a, const CheckpointReader& b);

/// Returns the report of compare_checkpoints() for two open checkpoints. Moves the lists of names
/// out of `pairs`.
CompareReport compare_pairs(const CheckpointReader& a, const CheckpointReader& b,
                            TensorPairs& pairs, Measured& measured,
                            const std::function<void(const Progress&)>& progress);

}  // namespace nvfp4::checkpoint
