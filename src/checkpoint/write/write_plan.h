#pragma once

#include "checkpoint/output/output.h"
#include "checkpoint/write/run_context.h"

namespace nvfp4::checkpoint {

/// Carries the plan out, or with `dry_run` only checks that it could be. What becomes of the model
/// is the report. The plan's units are gone afterwards.
QuantizeReport write_plan(Plan& plan, const TransformOptions& options, RunContext& run,
                          Output& output);

}  // namespace nvfp4::checkpoint
