#pragma once

#include "checkpoint/write/pipeline.h"

namespace nvfp4::checkpoint {

/// What a run did, whose shards were written with these outcomes; with none of them if none was to
/// be written. Asks the output which shards are done by others and whether this process ends it.
struct WrittenReport {
  QuantizeReport report;
  bool whole = true;  ///< every weight error is known
};
WrittenReport report_of_plan(const Plan& plan, const TransformOptions& options, Output& output,
                             Written written);

}  // namespace nvfp4::checkpoint
