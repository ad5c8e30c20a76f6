#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nvfp4/quantize.h"

/// What all functions share that read one checkpoint and write another.
namespace nvfp4 {

struct Progress {
  std::string tensor;  ///< a part of it was done last; "" before the first
  std::int64_t tensors_done = 0, tensors_total = 0;
  std::uint64_t bytes_done = 0, bytes_total = 0;  ///< of the input
};

/// The options of quantize_checkpoint(), convert_checkpoint() and repair_checkpoint() alike;
/// nvfp4/commands.h has a text for each.
struct RunOptions {
  std::filesystem::path input, output;
  Quantizer quantizer = Quantizer::mse;  ///< for what gets new block scales
  /// JSON object: module name, glob or re: -> activation amax, for weights without an input scale.
  /// Modules that share a scale take the largest of theirs; an expert without one takes the largest
  /// of the same projections of its layer's other experts; others get 2688 (input_scale 1).
  std::optional<std::filesystem::path> input_amax{};
  /// Resume: go on with an interrupted run of the same options and input; if `output` is complete
  /// and theirs, do nothing; if it is missing or empty, start.
  /// Overwrite: remove the weights, index and configs of the model in `output`; files that are no
  /// part of a model stay. Neither: `output` must be missing or empty.
  bool resume = false, overwrite = false, dry_run = false;
  std::string backend{};         ///< of the CPU
  Device device{};               ///< that encodes; the output is the same on each
  bool wait_for_device = false;  ///< else the CPU encodes until it has started
  /// Whatever this process has on the device is gone afterwards, and the device is not to be used
  /// again; the CPU encodes the end while that happens. For a process that does nothing else, and
  /// would have to wait for it at its end.
  bool release_device = false;
  std::function<void(const Progress&)> progress{};  ///< called from any thread, one at a time
};

/// What those functions do first. Throws ValueError if the options are none that a run can have:
/// no input or output, one inside the other, resume and overwrite together; UnsupportedError for an
/// output in a store, such as s3://bucket/model; IoError if that cannot be found out.
void check_options(const RunOptions& options);

/// Throws UnsupportedError for an address such as "s3://bucket/model", or what Python's pathlib
/// makes of it, "s3:/bucket/model": it would be taken for a folder "s3:" of this machine.
/// "C:/model" is none, and a folder of such a name is "./s3:/bucket".
void require_no_address(const std::filesystem::path& path);

}  // namespace nvfp4
