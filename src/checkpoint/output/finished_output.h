#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// What tells the shards in `folder` from those that the plan would write; empty if nothing does.
/// Compared are names, dtypes, shapes and metadata, which name the options and the input of what
/// was encoded, samples of what was copied, global scales of what was moved, rows of what was
/// decoded. Throws IoError.
std::string difference_from_plan(const Plan& plan, const std::filesystem::path& folder);

}  // namespace nvfp4::checkpoint
