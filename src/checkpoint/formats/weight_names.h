#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/io/tensor_table.h"
#include "nvfp4/layout.h"

/// The tensors that store a quantized weight, for reading and writing. CheckpointFormat::reads
/// lists them for each format.
namespace nvfp4::checkpoint {

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

}  // namespace nvfp4::checkpoint
