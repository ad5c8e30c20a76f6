#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nvfp4/checkpoint.h"

/// Converts between formats of quantized checkpoints.
namespace nvfp4 {

/// `input_amax` is for FP8 and MXFP4 weights, which get new scales; `quantizer` for FP8 weights.
struct ConvertOptions : RunOptions {
  std::string to;  ///< one of conversion_targets(); empty: that of a file of that name: "gguf"
  /// Of the output. Not given: that of the input's NVFP4 weights, else `nvfp4`.
  std::optional<Scheme> scheme;
  bool drop = false, force = false;  ///< as of QuantizeCheckpointOptions
  /// FP8 and MXFP4 weights that `to` cannot hold beside 4-bit ones become BF16, with a warning.
  /// Else they are an UnsupportedError.
  bool decode = false;
};

/// "modelopt", "compressed-tensors", ..., "bf16", "fp16".
std::vector<std::string> conversion_targets();

/// Writes the input in another format, in bounded memory, with the guarantees of
/// quantize_checkpoint().
///
/// NVFP4   codes and scales keep their values, and both senses of the global scale are kept, so
///         that a conversion there and back gives the same files, byte for byte, where both formats
///         can express what they hold: docs/conversions.md.
/// MXFP4   values stay: E2M1 codes as they are, powers of two as E4M3 scales. Blocks more than 2^17
///         below the largest of their tensor are rounded, and counted in the report.
/// FP8     quantized to NVFP4 as quantize_checkpoint() does; where the input holds 4-bit weights
///         too, it stays FP8.
/// bf16, fp16: every quantized weight is dequantized.
/// gguf    `output` is one .gguf file, written whole or not at all: docs/gguf.md.
/// Other tensors are copied.
///
/// Throws IoError, FormatError, ValueError, UnsupportedError; what the target cannot hold is an
/// error that names the tensor.
QuantizeReport convert_checkpoint(const ConvertOptions& options);

}  // namespace nvfp4
