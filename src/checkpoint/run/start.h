#pragma once

#include "checkpoint/plan/plan.h"
#include "checkpoint/write/run_context.h"

namespace nvfp4::checkpoint {

/// Checks the options of a run before anything is opened. Throws OptionsError or ValueError. Throws
/// UnsupportedError if the device is known not to be usable.
RunContext start_run(const RunOptions& options);
/// Does the same for a quantization or a conversion. Resolves the names of method, format and
/// recipe in the options.
RunContext start_run(TransformOptions& options);

}  // namespace nvfp4::checkpoint
