#pragma once

#include "checkpoint/plan/plan.h"
#include "checkpoint/write/run_context.h"

namespace nvfp4::checkpoint {

/// The options of a run, checked before anything is opened. Throws OptionsError, ValueError;
/// UnsupportedError if the device is known not to be usable.
RunContext start_run(const RunOptions& options);
/// The same of a quantization or a conversion. Puts what words stand for into the options: method,
/// format, and the recipe, read.
RunContext start_run(TransformOptions& options);

}  // namespace nvfp4::checkpoint
