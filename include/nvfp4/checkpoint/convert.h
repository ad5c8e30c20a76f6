#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nvfp4/checkpoint/checkpoint.h"

/// Conversion between formats of quantized checkpoints.
namespace nvfp4 {

/// Returns "modelopt", "compressed-tensors", ..., "bf16", "fp16".
std::vector<std::string> conversion_targets();

/// Writes the input in another format, in bounded memory, with the guarantees of
/// quantize_checkpoint().
///
/// NVFP4   Codes, scales and both senses of the global scale keep their values. If both formats can
///         express the content, a conversion there and back gives the same bytes. See
///         docs/conversions.md.
/// MXFP4   Values stay: E2M1 codes are copied, powers of two become E4M3 scales. Blocks more than
///         2^17 below the largest of their tensor are rounded, and counted in the report.
/// FP8     Weights are quantized to NVFP4 as quantize_checkpoint() does. If the
///         input also has 4-bit weights, they stay FP8.
/// bf16, fp16: Every quantized weight is dequantized.
/// gguf    `output` is one .gguf file, written as a whole or not at all: docs/gguf.md.
/// Other tensors are copied.
///
/// Throws IoError, FormatError, ValueError, UnsupportedError. The error for a tensor that the
/// target cannot hold names the tensor.
QuantizeReport convert_checkpoint(const ConvertOptions& options);

}  // namespace nvfp4
