#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/source/quantized_tensors.h"
#include "nvfp4/load_layers.h"

namespace nvfp4 {

struct Checkpoint::Impl {
  std::string path;
  checkpoint::CheckpointReader reader;
};

}  // namespace nvfp4

namespace nvfp4::checkpoint {

/// Finds weights and checks them. Views lead into the memory map, or into this object.
class LayerWeights {
 public:
  LayerWeights(const Checkpoint& checkpoint, Unquantized unquantized)
      : checkpoint_(checkpoint.impl()), unquantized_(unquantized) {}

  /// "<module>.weight" or "<module>"; null if there is neither.
  const LogicalTensor* find(const std::string& module) const;
  /// The same, of `dimensions` dimensions. Throws FormatError that names the tensor.
  const LogicalTensor& get(const std::string& module, std::size_t dimensions) const;

  /// A weight [N, K].
  WeightView matrix(const std::string& module);
  /// The matrices of an NVFP4 stack, each [N, K]. `interleave`: of so many matrices whose rows take
  /// turns in the file; they come one below the other.
  std::vector<WeightView> stack(const LogicalTensor& t, int interleave = 1);
  /// One of a plain stack: element (i, j) is at first + i · row_stride + j · col_stride.
  WeightView slice(const LogicalTensor& t, std::int64_t first, std::int64_t rows, std::int64_t cols,
                   std::int64_t row_stride, std::int64_t col_stride);
  /// "<module>.bias", or nothing.
  std::vector<float> bias(const std::string& module, std::int64_t outputs) const;
  /// Throws UnsupportedError if there is a bias that would be left out.
  void require_no_bias(const std::string& module) const;
  /// Throws FormatError unless `w` is [outputs, inputs].
  void require_shape(const WeightView& w, std::int64_t outputs, std::int64_t inputs) const;

  const CheckpointReader& reader() const { return checkpoint_.reader; }
  const std::string& path() const { return checkpoint_.path; }

 private:
  /// Matrix `index`, NVFP4.
  WeightView quantized(const LogicalTensor& t, std::int64_t index, int interleave = 1);
  /// A copy in which the rows of one matrix follow each other.
  const std::byte* sorted_rows(const std::byte* in, std::int64_t rows, std::int64_t bytes,
                               int interleave);
  /// Any other tensor that may be quantized. Throws FormatError.
  WeightView converted(const LogicalTensor& t);
  void require_wanted(const LogicalTensor& t) const;
  /// Bytes [offset, offset + size) of a tensor, where they are mapped or in a copy.
  const std::byte* bytes(const StoredTensor& t, std::int64_t offset, std::int64_t size);

  const Checkpoint::Impl& checkpoint_;
  Unquantized unquantized_;
  std::deque<Matrix> copies_;
  std::deque<std::vector<std::byte>> bytes_;
  std::deque<std::vector<float>> globals_;
};

/// "path: tensor 'name'".
std::string describe(const LogicalTensor& t);

}  // namespace nvfp4::checkpoint
