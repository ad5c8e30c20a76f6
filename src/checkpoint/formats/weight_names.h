#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/io/tensor_table.h"
#include "nvfp4/layout.h"

/// What a quantized weight is stored as, for readers and writers alike. A format has one or more of
/// these: CheckpointFormat::reads.
namespace nvfp4::checkpoint {

struct CheckpointFormat;

/// How the numbers of a tensor are encoded.
enum class Encoding : std::uint8_t {
  plain,  ///< a dtype
  nvfp4,  ///< E2M1, an E4M3 scale for each 16, an FP32 one for the matrix
  mxfp4,  ///< E2M1, a power of two (E8M0) for each 32
  fp8,    ///< E4M3, a scale for the matrix, each row or each square block
};

/// Where NVFP4 codes and scales lie in their tensors.
struct Arrangement {
  bool high_nibble_first = false;  ///< the even column is in the high nibble
  ScaleLayout scales = ScaleLayout::linear;
  bool operator==(const Arrangement&) const = default;
};

/// The tensors of one quantized weight. The suffixes follow the module's name; "" where the scheme
/// has no such tensor.
struct WeightNames {
  const CheckpointFormat* format = nullptr;
  Encoding encoding = Encoding::nvfp4;
  std::string_view codes = {}, scales = {}, global = {}, input = {};
  std::string_view other_input = {};  ///< another name of the input scale
  std::string_view left_out = {};     ///< a tensor about the inputs that no other form has
  bool divisors = false;              ///< global and input scale are stored as what one divides by
  Arrangement arrangement = {};
  std::string_view marker = {};         ///< a tensor that only says how the weight is stored
  std::string_view weight = ".weight";  ///< ends the weight's name in the model
  bool stacks = false;                  ///< of experts, [E, N, K / 2] or [E, K / 2, N]
  bool transposed_stacks = false;       ///< of experts, [E, N, K], which the model has as [E, K, N]
  bool is_native = false;               ///< of DeepSeek-V4, whose configuration stays as it is
  bool bf16_globals = false;            ///< global scales may be BF16
  /// Whether `codes`, whose name ends as it should, is such a weight, complete or not.
  bool (*claims)(const TensorTable& table, const StoredTensor& codes,
                 const std::string& module) = nullptr;
};

}  // namespace nvfp4::checkpoint
