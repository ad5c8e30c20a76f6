#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nvfp4/quantize.h"

/// Options and progress of the functions that read one checkpoint and write another.
namespace nvfp4 {

/// The progress of a run.
struct Progress {
  std::string tensor;  ///< tensor of the last completed part; "" before the first
  std::int64_t tensors_done = 0, tensors_total = 0;
  std::uint64_t bytes_done = 0, bytes_total = 0;  ///< bytes of the input
};

/// Losses and faults that a run accepts, with a warning. Otherwise they are errors.
struct Allowed {
  /// Tensors that the format cannot hold are left out: GGUF has no place for layers of multi-token
  /// prediction and scales of key and value caches.
  bool drop = false;
  /// Weights that verify_checkpoint() reports as broken are used as they are: scales that are NaN,
  /// infinite, negative, far too large or in the wrong sense, and FP8 codes that are NaN.
  bool broken_scales = false;
  /// FP8 and MXFP4 weights that the format cannot hold together with 4-bit weights become BF16.
  bool decode = false;
};
/// Returns what these names allow: "drop", "broken-scales", "decode". Throws ValueError.
Allowed allowed_from_names(const std::vector<std::string>& names);

/// The common options of quantize_checkpoint(), convert_checkpoint() and repair_checkpoint().
/// commands/commands.h describes each.
struct RunOptions {
  std::filesystem::path input, output;
  /// The method for tensors with new block scales: one of method_names(), or "gptq:N" for at most N
  /// sweeps of the descent. Empty: "weighted" with statistics, else "mse". Only
  /// quantize_checkpoint() takes methods that need statistics.
  std::string method{};
  /// A JSON object that maps a module name, glob or "re:" pattern to an activation amax. It applies
  /// to weights without an input scale. Modules that share a scale get the largest amax of them. An
  /// expert without amax gets the largest of the same projections of the layer's other experts.
  /// Other weights get 2688 (input_scale 1).
  std::optional<std::filesystem::path> input_amax{};
  /// `resume` continues an interrupted run with the same options and input. If `output` is complete
  /// and has these options and input, nothing is done; if it is missing or empty, the run starts.
  /// `overwrite` removes the files of `output` that its nvfp4.files.json lists. Others stay, and
  /// one that a loader would read is an IoError. Without both, `output` must be missing or empty.
  bool resume = false, overwrite = false, dry_run = false;
  std::string backend{};         ///< backend of the CPU
  Device device{};               ///< device of the encoder; the output is the same on each
  bool wait_for_device = false;  ///< if false, the CPU encodes until the device has started
  /// If true, the device is released while the CPU encodes the last rows. All that this process has
  /// on the device is lost, and the process cannot use the device again. It is for a process that
  /// does nothing else and would otherwise wait for the release at its end.
  bool release_device = false;
  std::function<void(const Progress&)> progress{};  ///< called from any thread, one at a time
  /// A file that the caller writes after the run: it must be apart from all that the run uses.
  std::filesystem::path report{};
};

/// Throws UnsupportedError for an address such as "s3://bucket/model", also as Python's pathlib
/// changes it: "s3:/bucket/model". It would otherwise name a folder "s3:" of this machine.
/// "C:/model" is no address, and a folder with such a name is "./s3:/bucket".
void require_no_address(const std::filesystem::path& path);

}  // namespace nvfp4
