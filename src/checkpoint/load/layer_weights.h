#pragma once

#include <deque>
#include <string>
#include <vector>

#include "checkpoint/source/quantized_tensors.h"
#include "nvfp4/checkpoint/load_layers.h"

namespace nvfp4 {

struct Checkpoint::Impl {
  std::string path;
  checkpoint::CheckpointReader reader;
};

}  // namespace nvfp4

namespace nvfp4::checkpoint {

/// Finds weights and checks them. Views refer to the memory map or to this object.
class LayerWeights {
 public:
  LayerWeights(const Checkpoint& checkpoint, Unquantized unquantized)
      : checkpoint_(checkpoint.impl()), unquantized_(unquantized) {}

  /// Returns the tensor "<module>.weight" or "<module>", or null if there is neither.
  const LogicalTensor* find(const std::string& module) const;
  /// Returns the same tensor. Throws FormatError with its name unless it has `dimensions`
  /// dimensions.
  const LogicalTensor& get(const std::string& module, std::size_t dimensions) const;

  /// Returns a weight [N, K].
  WeightView matrix(const std::string& module);
  /// Returns the matrices of an NVFP4 stack, each [N, K]. `interleave` is the number of matrices
  /// whose rows alternate in the file. In the result they are one below the other.
  std::vector<WeightView> stack(const LogicalTensor& t, int interleave = 1);
  /// Returns a matrix of a plain stack. Element (i, j) is at first + i · row_stride + j ·
  /// col_stride.
  WeightView slice(const LogicalTensor& t, std::int64_t first, std::int64_t rows, std::int64_t cols,
                   std::int64_t row_stride, std::int64_t col_stride);
  /// Returns "<module>.bias", or nothing.
  std::vector<float> bias(const std::string& module, std::int64_t outputs) const;
  /// Throws UnsupportedError if the module has a bias, which would be ignored.
  void require_no_bias(const std::string& module) const;
  /// Throws FormatError unless `w` is [outputs, inputs].
  void require_shape(const WeightView& w, std::int64_t outputs, std::int64_t inputs) const;

  const CheckpointReader& reader() const { return checkpoint_.reader; }
  const std::string& path() const { return checkpoint_.path; }

 private:
  /// Returns matrix `index` of an NVFP4 tensor.
  WeightView quantized(const LogicalTensor& t, std::int64_t index, int interleave = 1);
  /// Returns a copy in which the rows of each matrix are contiguous.
  const std::byte* sorted_rows(const std::byte* in, std::int64_t rows, std::int64_t bytes,
                               int interleave);
  /// Returns any other tensor that may be quantized. Throws FormatError.
  WeightView converted(const LogicalTensor& t);
  void require_wanted(const LogicalTensor& t) const;
  /// Returns bytes [offset, offset + size) of a tensor, in the memory map or in a copy.
  const std::byte* bytes(const StoredTensor& t, std::int64_t offset, std::int64_t size);

  const Checkpoint::Impl& checkpoint_;
  Unquantized unquantized_;
  std::deque<Matrix> copies_;
  std::deque<std::vector<std::byte>> bytes_;
  std::deque<std::vector<float>> globals_;
};

/// Returns the name for messages: "path: tensor 'name'".
std::string describe(const LogicalTensor& t);

}  // namespace nvfp4::checkpoint
