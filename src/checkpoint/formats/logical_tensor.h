#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/formats/declared.h"
#include "checkpoint/io/tensor_file.h"
#include "nvfp4/layout.h"
#include "nvfp4/quantize.h"

namespace nvfp4::checkpoint {

/// The product B · A that an adapter adds to a weight [rows, cols].
struct LowRank {
  std::int64_t rank = 0, cols = 0;
  std::vector<float> a;  ///< [rank, cols]
  std::vector<float> b;  ///< [rows, rank], scaled

  /// Adds elements [first, first + out.size()) of the product to `out`, in FP32. The sum over the
  /// rank comes first, in its order. The result therefore does not depend on the division of a
  /// weight.
  void add_to(std::int64_t first, std::span<float> out) const;
};

struct CheckpointFormat;

/// The encoding of a tensor's numbers.
enum class Encoding : std::uint8_t {
  plain,  ///< values of a dtype
  nvfp4,  ///< E2M1, an E4M3 scale for each 16, an FP32 scale for the matrix
  mxfp4,  ///< E2M1, a power of two (E8M0) for each 32
  fp8,    ///< E4M3, a scale for the matrix, each row or each square block
  int8,   ///< integers of 8 bits, a scale for the matrix or each row
  int4,   ///< integers of 4 bits, a scale and a zero point for each row of a group of columns
};

/// The arrangement of NVFP4 codes and scales in their tensors.
struct Arrangement {
  bool high_nibble_first = false;  ///< the even column is in the high nibble
  ScaleLayout scales = ScaleLayout::linear;
  bool operator==(const Arrangement&) const = default;
};

/// The order of INT4 codes [N, K] in 32-bit words.
enum class Int4Order : std::uint8_t {
  rows,  ///< [N, K / 8]
  gptq,  ///< [K / 8, N]
  awq,   ///< [K, N / 8], eight rows of W interleaved
};

/// The tensors of one quantized weight. The suffixes follow the module's name. "": the scheme has
/// no such tensor.
struct WeightNames {
  const CheckpointFormat* format = nullptr;
  Encoding encoding = Encoding::nvfp4;
  std::string_view codes = {}, scales = {}, global = {}, input = {};
  std::string_view denominator = {};  ///< the stored global scales are divided by it
  /// INT4: zero points, the group of each column, and the shape of the weight.
  std::string_view zeros = {}, column_groups = {}, shape = {};
  Int4Order order = Int4Order::rows;
  bool divisors = false;  ///< global and input scales are stored as divisors
  Arrangement arrangement = {};
  std::string_view marker = {};         ///< a tensor that only says how the weight is stored
  std::string_view weight = ".weight";  ///< suffix of the weight's name in the model
  bool stacks = false;                  ///< stacks of experts [E, N, K / 2] or [E, K / 2, N]
  bool transposed_stacks = false;       ///< stacks [E, N, K] that the model has as [E, K, N]
  bool is_native = false;               ///< DeepSeek-V4, whose configuration stays
  bool bf16_globals = false;            ///< global scales may be BF16
  bool words = false;                   ///< NVFP4: codes in U32 words, scales in U8
  /// Reports whether `codes` belongs to such a weight, complete or not. Its name ends in the
  /// suffix.
  bool (*claims)(const TensorTable& table, const StoredTensor& codes,
                 const std::string& module) = nullptr;
  /// Returns the name of a module in the model. Null: the file has the same name.
  std::string (*model_module)(const std::string& module) = nullptr;
};

/// The changes that a repair makes to a weight.
struct Correction {
  std::optional<GlobalScale> global;  ///< replaces the stored one; the block scales compensate
  std::optional<GlobalScale> input;   ///< replaces the stored one
  bool clear_signs = false;           ///< clear the sign bits of block scales
  bool requantize = false;            ///< the weight comes from the source and is quantized

  bool changes_scales() const { return global.has_value() || clear_signs; }
};

/// Reports whether a scale and its reciprocal are finite and positive.
bool is_valid(const GlobalScale& scale);
/// Returns the scale of matrix `index`. `scales` has one scale for all matrices of a stack, or one
/// for each.
const GlobalScale& scale_of(const std::vector<GlobalScale>& scales, std::int64_t index);

/// The tensors that only INT4 weights have.
struct Int4Parts {
  StoredTensor zeros, column_groups, shape;
  int zero_offset = 0;  ///< added to stored zero points
};

/// A tensor as the model uses it: stored as values, or as codes with scales.
struct LogicalTensor {
  std::string name;                    ///< "<module>.weight", whatever the name of the codes
  std::vector<std::int64_t> shape;     ///< shape of the values, not of the codes
  const WeightNames* names = nullptr;  ///< null for a plain tensor
  StoredTensor data;                   ///< values or codes
  StoredTensor scales;                 ///< only in quantized tensors
  StoredTensor global, input;          ///< NVFP4; FP8 may have an input scale
  std::shared_ptr<Int4Parts> int4;     ///< null for other encodings
  std::vector<StoredTensor> left_out;  ///< tensors beside the weight that are never copied
  std::vector<GlobalScale> globals;    ///< one, one for each matrix of a stack, or one for each row
  std::vector<GlobalScale> inputs;     ///< empty if there are none
  /// NVFP4: a stack [experts, K, N] as in x · W, with blocks along K.
  bool transposed = false;
  bool weights_only = false;                    ///< NVFP4 of a layer whose inputs are not quantized
  std::int64_t block_rows = 0, block_cols = 0;  ///< size of an FP8 or integer block with one scale
  std::uint64_t bytes = 0;                      ///< including its scales
  Correction correction;                        ///< read() does not apply it
  /// Low-rank corrections that read() adds to the values of a matrix.
  std::vector<std::shared_ptr<const LowRank>> added;

  Encoding encoding() const { return names == nullptr ? Encoding::plain : names->encoding; }
  bool is_plain() const { return names == nullptr; }
  /// Reports whether these are FP8 values without scales. Such codes are the values themselves.
  bool is_bare_fp8() const;
  /// Reports whether the stored bytes are the values.
  bool is_stored() const { return is_plain() && added.empty() && !is_bare_fp8(); }
  bool is_nvfp4() const { return encoding() == Encoding::nvfp4; }
  bool is_four_bits() const { return is_nvfp4() || encoding() == Encoding::mxfp4; }
  std::string form_name() const;  ///< "NVFP4", "MXFP4", "MXFP8", "FP8", "INT8", "INT4" or the dtype
  /// Returns the name without ".weight".
  std::string module() const;
  /// Reports whether the tensor is FP8 with a power of two for each 32 columns.
  bool is_mxfp8() const;
  std::int64_t elements() const;
  std::int64_t matrices() const { return shape.size() > 2 ? shape[0] : 1; }
  /// Size of one matrix as it is stored.
  std::int64_t rows() const { return shape[shape.size() - 2]; }
  std::int64_t cols() const { return shape.back(); }
  /// N and K of one matrix.
  std::int64_t outputs() const { return transposed ? cols() : rows(); }
  std::int64_t depth() const { return transposed ? rows() : cols(); }
  /// Returns the largest input scale, as a multiplier. Null if there is none.
  std::optional<float> input_scale() const;
  /// Returns the largest input that the input scale of an FP8 weight allows. Null if there is no
  /// usable one.
  std::optional<float> fp8_input_amax() const;
  /// Returns the tensor as if it were plain. Quantized tensors and FP8 values become BF16.
  safetensors::TensorInfo plain_info() const;
  /// Reports whether elements can be read as numbers: not F4, F6_*, F8_*FNUZ and C64.
  bool readable() const;
  /// Reports whether FP32 holds all values exactly: not those of 64 bits and of 32-bit integers.
  bool exact_as_float() const;

  /// Reads elements [first, first + out.size()) in row-major order as FP32. Both ends are multiples
  /// of 16 for a quantized tensor that is not transposed. Thread-safe. Throws IoError.
  void read(std::int64_t first, std::span<float> out) const;
  /// Reads the bytes of a plain tensor from element `first` on, a multiple of 8.
  void read_bytes(std::int64_t first, std::span<std::byte> out) const;
  /// NVFP4: reads blocks [first, first + scales.size()), in row-major order over all matrices [N,
  /// K]. A block has 8 bytes of codes, the even column in the low nibble, and one scale. A
  /// transposed stack is read in whole rows, faster with more rows. Thread-safe.
  void read_blocks(std::int64_t first, std::span<std::byte> codes,
                   std::span<std::byte> scales) const;
};

/// Converts values of any readable dtype to FP32.
void to_floats(safetensors::DType dtype, std::span<const std::byte> in, std::span<float> out);

/// A fault in the tensors of one weight. `code` is a code of `nvfp4 verify`.
struct Defect {
  std::string code;
  std::string tensor;
  std::string text;       ///< contains file and tensor
  std::string form = {};  ///< the apparent form of a weight that cannot be read
};

struct FoundTensors {
  std::vector<LogicalTensor> tensors;  ///< by file, in the order of their bytes
  /// Faults of weights. Such a weight is among `tensors` and must not be read.
  std::vector<Defect> defects;
  /// Weights in forms that are not supported, with one tensor of each module. Copied, they would
  /// mean something else.
  std::vector<Defect> unknown;
  std::vector<std::string> integers;  ///< integer tensors of no weight and no known use
};

/// Reports whether a stack is [E, K, N], for slice_experts(). Null if it is plain or FP8, which may
/// be either.
std::optional<bool> orientation(const LogicalTensor& stack);

struct Declared;

/// Combines codes and scales into tensors. `declared`, the configuration, may be null; GPTQ needs
/// it.
FoundTensors find_tensors(const TensorTable& table, const Declared* declared = nullptr);

/// Returns the name of the form, for messages.
std::string_view int4_name(const WeightNames& names);

/// The reason why an INT4 weight cannot be read.
struct Int4Fault {
  std::string_view code;  ///< a code of `nvfp4 verify`; kAnotherForm if the tensors may be whole
  std::string text;       ///< "": none
};
inline constexpr std::string_view kAnotherForm = "unknown-form";

/// Checks the tensors of an INT4 weight, and sets its shape. `declared` may be null.
Int4Fault check_int4(LogicalTensor& weight, const Declared* declared);

/// Reads elements as LogicalTensor::read() does. The product is rounded to FP32 once.
void read_int4(const LogicalTensor& weight, std::int64_t first, std::span<float> out);

}  // namespace nvfp4::checkpoint
