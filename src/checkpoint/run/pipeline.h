#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Writes the shards whose `done` is false into the folder `output`, in bounded memory: windows of
/// about 100 MB of input, each measured, then encoded, while the next is measured. `before_commit`
/// is called with each shard's number, when all its bytes are written and before it gets its name.
/// `container`: of `output`, if that is a file of another kind; null: safetensors in it.
/// Returns the outcome of each tensor of the shards it wrote. The result does not depend on the
/// number of threads, nor on the device.
std::vector<Outcome> write_shards(
    const Plan& plan, const TransformOptions& options, const Container* container,
    const std::filesystem::path& output, const std::vector<bool>& done,
    const std::function<void(std::size_t shard, const std::vector<Outcome>&)>& before_commit);

}  // namespace nvfp4::checkpoint
