#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/verify.h"

/// Repair of faulty NVFP4 checkpoints.
namespace nvfp4 {

/// A correction.
struct RepairChange {
  std::string code;    ///< code of the finding
  std::string tensor;  ///< tensor, module or file
  std::string text;    ///< description of the correction
  /// The relative error against the weights before, if the change rounds them.
  std::optional<double> loss;
};

/// The result of repair_checkpoint().
struct RepairReport {
  QuantizeReport written;
  std::vector<RepairChange> changes;
  VerifyReport before, after;  ///< `after` is empty for a dry run
};

/// Writes the input again, in the same format and in bounded memory, with the guarantees of
/// quantize_checkpoint(). Corrections:
///
/// - Fused partners get the largest of their global scales and of their input scales. Their block
///   scales are multiplied by the ratio and rounded to E4M3; codes stay. With a source, the weights
///   are quantized again instead.
/// - Input scales that are missing or not positive get the largest of their partners and of the
///   other experts. Without those they get the value of --input-amax, else 1.
/// - Global scales in the wrong sense, tiled scales, swapped nibbles and signs of scales are
///   corrected. Index and configurations are written again. config.json keeps everything else.
///
/// Throws IoError, FormatError, ValueError. Throws UnsupportedError for a finding that needs the
/// source or cannot be corrected; the error names the tensor and the finding.
RepairReport repair_checkpoint(const RepairOptions& options);
/// Returns the report as one JSON object, for --json.
std::string to_json(const RepairReport& report);

}  // namespace nvfp4
