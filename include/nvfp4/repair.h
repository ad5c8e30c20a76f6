#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nvfp4/checkpoint.h"
#include "nvfp4/verify.h"

/// Corrects a faulty NVFP4 checkpoint.
namespace nvfp4 {

/// `input_amax` is for weights without an input scale, `quantizer` for what is quantized again.
struct RepairOptions : RunOptions {
  /// The original checkpoint: weights that cannot be corrected otherwise are quantized again.
  std::optional<std::filesystem::path> source;
  /// Take all block scales out of 128x4 tiles, all even columns from the high nibble. If false,
  /// only where the sizes or the source show that this is needed.
  bool scales_swizzled = false, high_nibble_first = false;
};

struct RepairChange {
  std::string code;    ///< of the finding that it answers
  std::string tensor;  ///< tensor, module or file
  std::string text;    ///< what was done
  /// Relative error against the weights as they were, where the change rounds them.
  std::optional<double> loss;
};

struct RepairReport {
  QuantizeReport written;
  std::vector<RepairChange> changes;
  VerifyReport before, after;  ///< `after` is empty for a dry run
};

/// Writes the input again, in the same format and in bounded memory, with the guarantees of
/// quantize_checkpoint():
///
/// fused partners get the largest of their global scales and of their input scales; their block
///   scales are multiplied by the ratio and rounded to E4M3, codes stay. With a source they are
///   quantized again instead;
/// input scales that are missing or not positive become the largest of their partners and of the
///   other experts, else that of --input-amax, else 1;
/// global scales in the wrong sense, tiled scales, swapped nibbles and signs of scales are
///   corrected; index and configurations are written anew. config.json keeps everything else.
///
/// Throws IoError, FormatError, ValueError; UnsupportedError, which names the tensor and the
/// finding that needs the source or cannot be corrected.
RepairReport repair_checkpoint(const RepairOptions& options);
std::string to_json(const RepairReport& report);  ///< one object, as of --json

}  // namespace nvfp4
