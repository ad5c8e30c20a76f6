#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/output/output.h"

namespace nvfp4::checkpoint {

struct Written {
  std::vector<Outcome> outcomes;  ///< outcome of each tensor of the plan
  std::string warning;  ///< about values that need --allow broken-scales; empty if there are none
};

/// Writes the shards that the output does not have yet. Memory is bounded: windows have about 100
/// MB of input, and one is encoded while the next is measured. `before_commit` is called when all
/// bytes of a shard are written, before the output records it. The result does not depend on the
/// number of threads or on the device. Throws FormatError for FP8 codes that are NaN unless
/// options.allow.broken_scales is set.
Written write_shards(const Plan& plan, const TransformOptions& options, Output& output,
                     const std::function<void()>& before_commit);

}  // namespace nvfp4::checkpoint
