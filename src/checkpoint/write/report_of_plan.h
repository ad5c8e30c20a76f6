#pragma once

#include "checkpoint/write/pipeline.h"

namespace nvfp4::checkpoint {

/// The report of a run, given the outcomes of its shards. `written` is empty if nothing was to be
/// written. The output tells which shards other runs wrote, and whether this process ends it.
struct WrittenReport {
  QuantizeReport report;
  bool whole = true;  ///< every weight error is known
};
WrittenReport report_of_plan(const Plan& plan, const TransformOptions& options, Output& output,
                             Written written);

}  // namespace nvfp4::checkpoint
