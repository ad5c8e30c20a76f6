#pragma once

#include "checkpoint/output/output.h"
#include "checkpoint/write/run_context.h"

namespace nvfp4::checkpoint {

/// Writes the output of a plan and returns the report. With `dry_run` it only checks whether that
/// is possible. Writing frees the plan's units and groups.
QuantizeReport write_plan(Plan& plan, const TransformOptions& options, RunContext& run,
                          Output& output);

}  // namespace nvfp4::checkpoint
