#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/work/chunk.h"

namespace nvfp4::checkpoint {

inline constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// The tensors of a matrix in its output shard, as indices. kNone: the scheme has no such tensor.
struct Places {
  std::size_t codes = kNone, scales = kNone, weight_global = kNone, input_global = kNone,
              marker = kNone;
};

/// The shard and the tensors to which a matrix is written.
struct MatrixOutput {
  ShardWriter& writer;
  const Places& places;
  const CheckpointFormat* format;  ///< null if nothing stays quantized

  /// Writes a whole tensor, if the scheme has it.
  void write(std::size_t tensor, std::string_view text) const {
    if (tensor != kNone) writer.write(tensor, 0, std::as_bytes(std::span(text)));
  }
  void write(std::size_t tensor, float number) const {
    if (tensor != kNone) writer.write(tensor, 0, std::as_bytes(std::span(&number, 1)));
  }
};

/// The facts that decide the global scale of a group.
struct GroupFacts {
  float amax = 0;                          ///< the largest measured magnitude
  Quantizer rule = Quantizer::mse;         ///< the rule for block scales
  std::optional<GlobalScale> copied = {};  ///< the largest one of copied weights, if there are any
};

/// The operation that produces an output matrix. Each kind of work is a class of its own. The plan
/// decides it when all groups are known; it never changes.
class MatrixWork {
 public:
  virtual ~MatrixWork() = default;

  /// Returns the word for reports: "quantized", "moved", ...
  virtual std::string_view action() const = 0;
  /// Returns the number of rows that one task encodes and writes.
  std::int64_t rows_per_chunk(const WeightSlice& slice) const {
    const std::int64_t multiple = row_multiple_;
    return std::clamp<std::int64_t>(round_up(chunk_elements(slice) / slice.cols, multiple),
                                    std::min(multiple, slice.rows), slice.rows);
  }

  /// Reports whether the global scale depends on a measured amax.
  virtual bool is_measured() const { return false; }
  /// Returns the largest magnitude of the tensor's elements [begin, begin + count).
  virtual AmaxResult measure(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                             const Backend& backend, Buffers& buffers) const {
    return measure_chunk(tensor, begin, count, backend, buffers);
  }
  /// Returns the global scale of a group.
  virtual GlobalScale global_scale(const GroupFacts& /*group*/) const { return {}; }
  /// Encodes rows on the CPU. The result is in `buffers`. `method` has the group's global scale.
  virtual EncodedChunk encode(const MatrixRows& rows, const RowsMethod& method,
                              Buffers& buffers) const = 0;
  /// Returns the output error over the calibration text that encoded rows add. It assumes that
  /// errors of two inputs are uncorrelated: squared errors times the sum of squares of their
  /// channel. Returns 0 for work that does not round values of a dtype.
  virtual double weighted_error(const MatrixRows& /*rows*/, const EncodedChunk& /*chunk*/,
                                float /*global*/, std::span<const double> /*squares*/) const {
    return 0;
  }

  /// Writes encoded rows, and changes them. `room` is working memory.
  virtual void write(const MatrixOutput& to, const MatrixRows& rows, EncodedChunk& chunk,
                     std::vector<std::byte>& room) const = 0;
  /// Writes the tensors of the matrix that do not depend on its rows. `global` is the group's.
  virtual void write_scales(const MatrixOutput& /*to*/, const GlobalScale& /*global*/) const {}

 protected:
  /// `row_multiple`: number of rows that must be written together.
  explicit MatrixWork(std::int32_t row_multiple) : row_multiple_(row_multiple) {}
  MatrixWork(const MatrixWork&) = default;
  MatrixWork& operator=(const MatrixWork&) = default;

  /// Returns the number of elements of a chunk.
  virtual std::int64_t chunk_elements(const WeightSlice& slice) const {
    return slice.col_stride == 1 ? 1 << 18 : kTransposedChunkElements;
  }
  /// Returns weighted_error() of rows whose dequantized values `value(row, column)` returns.
  template <class Value>
  static double sum_weighted(const MatrixRows& rows, std::span<const double> squares,
                             const Value& value);

 private:
  std::int32_t row_multiple_;
};

template <class Value>
double MatrixWork::sum_weighted(const MatrixRows& rows, std::span<const double> squares,
                                const Value& value) {
  std::vector<float> values(static_cast<std::size_t>(rows.rows * rows.slice.cols));
  std::vector<std::byte> strip;
  read_floats(rows, strip, std::as_writable_bytes(std::span(values)));
  double sum = 0;
  const float* x = values.data();
  for (std::int64_t r = 0; r < rows.rows; ++r)
    for (std::int64_t c = 0; c < rows.slice.cols; ++c, ++x) {
      const double lost = double{*x} - value(r, c);
      sum += squares[static_cast<std::size_t>(c)] * lost * lost;
    }
  return sum;
}

}  // namespace nvfp4::checkpoint
