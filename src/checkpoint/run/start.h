#pragma once

#include <vector>

#include "checkpoint/plan/plan.h"
#include "checkpoint/safetensors/apart.h"
#include "checkpoint/write/write_plan.h"

namespace nvfp4::checkpoint {

/// Throws OptionsError for options that exclude each other or are out of range.
void check_given(const RunOptions& options);
void check_given(const QuantizeCheckpointOptions& options);
/// Checks the options of a run before anything is opened. `also_read` lists what the run reads
/// besides the paths in RunOptions. Throws OptionsError or ValueError. Throws
/// UnsupportedError if the device is known not to be usable.
RunContext start_run(const RunOptions& options, std::vector<UsedPath> also_read);
/// Returns the method, which is `otherwise` if none is given. Throws OptionsError.
ChosenMethod chosen_method(const TransformOptions& options, std::string_view otherwise);
/// Does the same for a quantization or a conversion. Resolves the names of method, format and
/// recipe in the options.
RunContext start_run(TransformOptions& options);

}  // namespace nvfp4::checkpoint
