#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/formats/weight_names.h"
#include "checkpoint/io/tensor_table.h"
#include "core/low_rank.h"
#include "nvfp4/quantize.h"

namespace nvfp4::checkpoint {

/// What a repair changes of a weight.
struct Correction {
  std::optional<GlobalScale> global;  ///< in place of its own; the block scales make up for it
  std::optional<GlobalScale> input;   ///< in place of its own
  bool clear_signs = false;           ///< of block scales
  bool requantize = false;            ///< it is a weight of the source, to be quantized

  bool changes_scales() const { return global.has_value() || clear_signs; }
};

/// Whether a scale is finite and positive, and so its reciprocal.
bool is_valid(const GlobalScale& scale);
/// That of matrix `index`, of scales of which there is one for all matrices of a stack, or one for
/// each.
const GlobalScale& scale_of(const std::vector<GlobalScale>& scales, std::int64_t index);

/// A tensor as the model sees it: stored as it is, or as codes with their scales.
struct LogicalTensor {
  std::string name;                    ///< "<module>.weight", whatever the codes are called
  std::vector<std::int64_t> shape;     ///< of the values, not of the codes
  const WeightNames* names = nullptr;  ///< null for a plain tensor
  StoredTensor data;                   ///< values or codes
  StoredTensor scales;                 ///< of quantized ones
  StoredTensor global, input;          ///< of NVFP4; FP8 may have an input scale, too
  StoredTensor left_out;               ///< a tensor about its inputs that is never copied
  std::vector<GlobalScale> globals;    ///< one, one for each matrix of a stack, or for each row
  std::vector<GlobalScale> inputs;     ///< empty if there is none
  /// NVFP4: a stack [experts, K, N], as x · W needs it, whose blocks go along K.
  bool transposed = false;
  std::int64_t block_rows = 0, block_cols = 0;        ///< that share a scale of FP8
  std::uint64_t bytes = 0;                            ///< with its scales
  Correction correction;                              ///< what read() does not know of
  std::vector<std::shared_ptr<const LowRank>> added;  ///< to the values of a matrix, by read()

  Encoding encoding() const { return names == nullptr ? Encoding::plain : names->encoding; }
  bool is_plain() const { return names == nullptr; }
  /// Reports whether these are FP8 values without scales, which stand for themselves.
  bool is_bare_fp8() const;
  /// Its values are the bytes that are stored.
  bool is_stored() const { return is_plain() && added.empty() && !is_bare_fp8(); }
  bool is_nvfp4() const { return encoding() == Encoding::nvfp4; }
  bool is_four_bits() const { return is_nvfp4() || encoding() == Encoding::mxfp4; }
  std::string form_name() const;  ///< "NVFP4", "MXFP4", "FP8" or the dtype
  /// The name less ".weight".
  std::string module() const;
  /// FP8 with a power of two for each 32 columns.
  bool is_mxfp8() const;
  std::int64_t elements() const;
  std::int64_t matrices() const { return shape.size() > 2 ? shape[0] : 1; }
  /// Of one matrix.
  std::int64_t rows() const { return shape[shape.size() - 2]; }
  std::int64_t cols() const { return shape.back(); }
  /// N and K of one matrix.
  std::int64_t outputs() const { return transposed ? cols() : rows(); }
  std::int64_t depth() const { return transposed ? rows() : cols(); }
  /// The largest input scale, as a multiplier.
  std::optional<float> input_scale() const;
  /// Returns the largest input that an FP8 weight's input scale was made for, if it has a usable
  /// one.
  std::optional<float> fp8_input_amax() const;
  /// What it would be if it were plain: quantized ones and FP8 values as BF16.
  safetensors::TensorInfo plain_info() const;
  /// False for dtypes whose elements are not read as numbers: F4, F6_*, F8_*FNUZ, C64.
  bool readable() const;
  /// False for dtypes that FP32 rounds (64 bits, 32-bit integers).
  bool exact_as_float() const;

  /// Elements [first, first + out.size()) in row-major order as FP32. Of a quantized tensor that is
  /// not transposed both ends are multiples of 16. Thread-safe. Throws IoError.
  void read(std::int64_t first, std::span<float> out) const;
  /// The bytes that start at element `first`, a multiple of 8, of a plain tensor.
  void read_bytes(std::int64_t first, std::span<std::byte> out) const;
  /// NVFP4: blocks [first, first + scales.size()), counted in row-major order over all matrices
  /// [N, K]: 8 bytes of codes each, the even column in the low nibble, and their scales. Of a
  /// transposed stack whole rows, the more the faster. Thread-safe.
  void read_blocks(std::int64_t first, std::span<std::byte> codes,
                   std::span<std::byte> scales) const;
};

/// Values of any readable dtype as FP32.
void to_floats(safetensors::DType dtype, std::span<const std::byte> in, std::span<float> out);

/// What is wrong with the tensors of one weight. `code` is one of `nvfp4 verify`.
struct Defect {
  std::string code;
  std::string tensor;
  std::string text;       ///< names file and tensor
  std::string form = {};  ///< of a weight that is not read, the form that it seems to have
};

struct FoundTensors {
  std::vector<LogicalTensor> tensors;  ///< file by file, in the order of their bytes
  /// A weight with a defect is among the tensors, and must not be read.
  std::vector<Defect> defects;
  /// Weights in a form that is not read, one tensor of each module: copied, they would mean
  /// something else.
  std::vector<Defect> unknown;
  std::vector<std::string> integers;  ///< names of integer tensors of no weight and no known use
};

/// For slice_experts(): whether a stack is [E, K, N]; nothing if it is plain and may be either.
std::optional<bool> orientation(const LogicalTensor& stack);

/// Puts codes and scales together.
FoundTensors find_tensors(const TensorTable& table);

}  // namespace nvfp4::checkpoint
