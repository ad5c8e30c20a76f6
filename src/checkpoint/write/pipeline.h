#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

struct Written {
  std::vector<Outcome> outcomes;  ///< of each tensor of the shards
  std::string warning;            ///< of values that only --force takes; empty if there are none
};

/// Writes the shards whose `done` is false into the folder `output`, in bounded memory: windows of
/// about 100 MB of input, each measured, then encoded, while the next is measured. `before_commit`
/// is called with each shard's number, when all its bytes are written and before it gets its name.
/// `container`: of `output`, if that is a file of another kind; null: safetensors in it.
/// The result does not depend on the number of threads, nor on the device. Throws FormatError for
/// FP8 codes that are NaN unless options.force.
Written write_shards(
    const Plan& plan, const TransformOptions& options, const Container* container,
    const std::filesystem::path& output, const std::vector<bool>& done,
    const std::function<void(std::size_t shard, const std::vector<Outcome>&)>& before_commit);

}  // namespace nvfp4::checkpoint
