#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/io/grow.h"
#include "checkpoint/work/chunk.h"

/// The work on matrices: a class for each kind, with its encoding and its place in the output.
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
    return measure_chunk(tensor, begin, count, backend,
                         grow(buffers.input, count * dtype_size(read_dtype(tensor))));
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

  /// Writes encoded rows, and may change them. `room` is working memory. Without an override the
  /// codes of all rows follow one another from first_byte() on.
  virtual void write(const MatrixOutput& to, const MatrixRows& rows, EncodedChunk& chunk,
                     std::vector<std::byte>& /*room*/) const {
    const std::size_t row_bytes = chunk.codes.size() / static_cast<std::size_t>(rows.rows);
    to.writer.write(to.places.codes, first_byte() + static_cast<std::size_t>(rows.row) * row_bytes,
                    chunk.codes);
  }
  /// Writes the tensors of the matrix that do not depend on its rows. `global` is the group's.
  virtual void write_scales(const MatrixOutput& /*to*/, const GlobalScale& /*global*/) const {}

 protected:
  /// `row_multiple`: number of rows that must be written together.
  explicit MatrixWork(std::int32_t row_multiple) : row_multiple_(row_multiple) {}
  MatrixWork(const MatrixWork&) = default;
  MatrixWork& operator=(const MatrixWork&) = default;

  /// Returns the place of the matrix in its tensor.
  virtual std::uint64_t first_byte() const { return 0; }
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

/// The facts about a matrix in NVFP4 that do not depend on how its codes are made.
struct Nvfp4Output {
  /// Number of rows of the stack [K, rows] that contains this matrix; 0 for a weight of its own.
  std::int64_t stack_rows = 0;
  std::int64_t stack_begin = 0;   ///< the first element of the matrix in the stack
  std::int64_t first_row = 0;     ///< of the matrix in a tensor of several matrices
  GlobalScale input = {};         ///< the input scale, where the scheme has one
  bool input_is_given = false;    ///< the input scale is the one of an NVFP4 weight
  bool has_global = true;         ///< the format stores a global scale; otherwise it is 1
  std::int32_t row_multiple = 1;  ///< number of rows that must be written together
};

/// Work whose result is NVFP4.
class Nvfp4Work : public MatrixWork {
 public:
  const Nvfp4Output& output() const { return output_; }

  void write(const MatrixOutput& to, const MatrixRows& rows, EncodedChunk& chunk,
             std::vector<std::byte>& room) const override;
  void write_scales(const MatrixOutput& to, const GlobalScale& global) const override;

 protected:
  explicit Nvfp4Work(const Nvfp4Output& output)
      : MatrixWork(output.row_multiple), output_(output) {}

  std::int64_t chunk_elements(const WeightSlice& slice) const override;

 private:
  Nvfp4Output output_;
};

/// NVFP4 from values of a dtype, from FP8, or from MXFP4 in a group with other weights.
class QuantizeWork final : public Nvfp4Work {
 public:
  explicit QuantizeWork(const Nvfp4Output& output) : Nvfp4Work(output) {}

  std::string_view action() const override { return "quantized"; }
  bool is_measured() const override { return true; }
  /// Copied weights keep their global scale if it is large enough for the others of the group.
  GlobalScale global_scale(const GroupFacts& group) const override;
  EncodedChunk encode(const MatrixRows& rows, const RowsMethod& method,
                      Buffers& buffers) const override;
  double weighted_error(const MatrixRows& rows, const EncodedChunk& chunk, float global,
                        std::span<const double> squares) const override;
  /// Returns the squared error that a chunk of rows would have with one global scale of its own.
  /// `method` has no Gram matrix.
  double error_with_global(const MatrixRows& rows, RowsMethod method, Buffers& buffers) const;
};

/// NVFP4 from MXFP4. Values stay, except in blocks whose scale is below the smallest one. Those are
/// rounded with that scale, and counted.
class TranscodeWork final : public Nvfp4Work {
 public:
  explicit TranscodeWork(const Nvfp4Output& output) : Nvfp4Work(output) {}

  std::string_view action() const override { return "converted"; }
  bool is_measured() const override { return true; }
  /// Returns the largest scale of the elements, and whether all scales are numbers.
  AmaxResult measure(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                     const Backend& backend, Buffers& buffers) const override;
  /// The largest scale, `amax`, becomes 256. Each power of two down to 2^-17 of it is an E4M3.
  /// Source: NVIDIA Model-Optimizer, examples/deepseek/deepseek_v4, cast_mxfp4_to_nvfp4.
  GlobalScale global_scale(const GroupFacts& group) const override;
  EncodedChunk encode(const MatrixRows& rows, const RowsMethod& method,
                      Buffers& buffers) const override;
};

/// Returns the input scale of a slice of an NVFP4 weight. `declared` is the input's declaration, or
/// null. Throws ValueError for a weight that has none, or one that is not finite and positive.
/// Throws UnsupportedError if it is that of FP8.
GlobalScale copied_input(const LogicalTensor& t, const WeightSlice& slice,
                         const Declared* declared);

/// NVFP4 from NVFP4: codes and scales are copied.
class CopyWork final : public Nvfp4Work {
 public:
  /// `encodes`: other weights of the group are encoded, and all get one global scale. The block
  /// scales compensate; they lose their sign and are rounded. Throws as global_of() does.
  CopyWork(const Nvfp4Output& output, const LogicalTensor& t, const WeightSlice& slice,
           bool encodes);

  /// Returns the global scale of a slice of an NVFP4 weight, or that of its repair. Throws
  /// ValueError for one that is not finite and positive. Throws UnsupportedError if each row has
  /// one.
  static GlobalScale global_of(const LogicalTensor& t, const WeightSlice& slice);
  /// Reports whether the block scales of a slice, times its global scale, are E4M3 numbers. Reads
  /// them if the global scale is a power of two other than 1.
  static bool is_exact_without_global(const LogicalTensor& t, const WeightSlice& slice);

  std::string_view action() const override { return "moved"; }
  EncodedChunk encode(const MatrixRows& rows, const RowsMethod& method,
                      Buffers& buffers) const override;
  void write_scales(const MatrixOutput& to, const GlobalScale& global) const override;
  /// Returns the global scale, unless it depends on the group.
  std::optional<GlobalScale> own_global() const {
    return encodes_ ? std::nullopt : std::optional(global_);
  }

 protected:
  std::int64_t chunk_elements(const WeightSlice& slice) const override;

 private:
  GlobalScale global_;
  float stored_;  ///< multiplier of the input
  bool encodes_;
  bool is_changed_;  ///< the repair changes block scales
};

/// Returns the scale of elements whose largest magnitude is `amax`: amax / 448, at least the
/// smallest normal float. It is 1 for zeros.
float fp8_scale(float amax);

/// Returns the MXFP8 exponent of such elements, as E8M0. It is that of the smallest power of two
/// under which no element exceeds 448, and 0 for zeros. Source: OCP Microscaling Formats 1.0,
/// section 5.1, with the exponent rounded up, as in ModelOpt
/// (modelopt/torch/quantization/qtensor/mxfp8_tensor.py).
std::uint8_t mxfp8_exponent(float amax);

/// FP8 from values of a dtype or from FP8. A code is E4M3(x / scale); the quotient is rounded to
/// FP32 first, as in PyTorch.
class Fp8Work final : public MatrixWork {
 public:
  using Scales = Fp8Module::Scales;

  /// `input_amax`: the largest magnitude of the layer's inputs, for the scale of those.
  Fp8Work(Scales scales, float input_amax)
      : MatrixWork(scales == Scales::block ? kFp8Block : 1),
        scales_(scales),
        input_(fp8_scale(input_amax)) {}

  std::string_view action() const override { return "fp8"; }
  bool is_measured() const override { return scales_ == Scales::tensor; }
  GlobalScale global_scale(const GroupFacts& group) const override;
  EncodedChunk encode(const MatrixRows& rows, const RowsMethod& method,
                      Buffers& buffers) const override;
  double weighted_error(const MatrixRows& rows, const EncodedChunk& chunk, float global,
                        std::span<const double> squares) const override;
  void write(const MatrixOutput& to, const MatrixRows& rows, EncodedChunk& chunk,
             std::vector<std::byte>& room) const override;
  void write_scales(const MatrixOutput& to, const GlobalScale& global) const override;

 private:
  std::uint64_t scale_bytes(const WeightSlice& slice, std::int64_t rows) const;

  Scales scales_;
  float input_;
};

/// The place of a dequantized matrix in its tensor.
struct PlainOutput {
  safetensors::DType dtype = safetensors::DType::bf16;
  std::int64_t begin = 0;  ///< the first element in the tensor
  bool transposed = false;
  bool pairs = false;        ///< the columns of a second matrix stand beside those of the first
  bool interleaved = false;  ///< the columns of both alternate
};

/// Values of a dtype, from any form.
class DequantizeWork final : public MatrixWork {
 public:
  explicit DequantizeWork(const PlainOutput& output)
      : MatrixWork(output.transposed ? 32 : 1), output_(output) {}

  const PlainOutput& output() const { return output_; }
  std::string_view action() const override { return "dequantized"; }
  EncodedChunk encode(const MatrixRows& rows, const RowsMethod& method,
                      Buffers& buffers) const override;

 protected:
  std::uint64_t first_byte() const override {
    return static_cast<std::uint64_t>(output_.begin * safetensors::dtype_bits(output_.dtype) / 8);
  }
  std::int64_t chunk_elements(const WeightSlice& slice) const override {
    return MatrixWork::chunk_elements(slice) / (output_.pairs ? 2 : 1);
  }

 private:
  PlainOutput output_;
};

/// Q8_0 of GGUF from any form, with the bits of ggml: the scale is amax / 127, and a code is
/// round(x / scale), with halves away from zero. Source: ggml/src/ggml-quants.c,
/// quantize_row_q8_0_ref().
class Q8Work final : public MatrixWork {
 public:
  Q8Work() : MatrixWork(1) {}
  std::string_view action() const override { return "q8_0"; }
  EncodedChunk encode(const MatrixRows& rows, const RowsMethod& method,
                      Buffers& buffers) const override;
};

/// MXFP4 of GGUF from MXFP4: codes and exponents in other places.
class Mxfp4Work final : public MatrixWork {
 public:
  Mxfp4Work() : MatrixWork(1) {}
  std::string_view action() const override { return "kept"; }
  /// Throws ValueError for an exponent that is NaN.
  EncodedChunk encode(const MatrixRows& rows, const RowsMethod& method,
                      Buffers& buffers) const override;
};

/// Work of any kind.
using Work =
    std::variant<QuantizeWork, TranscodeWork, CopyWork, Fp8Work, DequantizeWork, Q8Work, Mxfp4Work>;

}  // namespace nvfp4::checkpoint
