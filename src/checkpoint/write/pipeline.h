#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/output/output.h"

namespace nvfp4::checkpoint {

struct Written {
  std::vector<Outcome> outcomes;  ///< of each tensor of the shards
  std::string warning;            ///< of values that only --force takes; empty if there are none
};

/// Writes the shards that the output does not have yet, in bounded memory: windows of about 100 MB
/// of input, each measured, then encoded, while the next is measured. `before_commit` is called
/// when all bytes of a shard are written, before the output takes note of it. The result does not
/// depend on the number of threads, nor on the device. Throws FormatError for FP8 codes that are
/// NaN unless options.force.
Written write_shards(const Plan& plan, const TransformOptions& options, Output& output,
                     const std::function<void()>& before_commit);

}  // namespace nvfp4::checkpoint
