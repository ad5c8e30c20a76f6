#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/plan/plan.h"
#include "checkpoint/safetensors/written_files.h"

namespace nvfp4::checkpoint {

/// What tells the shards in `folder` from those that the plan would write; empty if nothing does.
/// Compared are names, dtypes, shapes and metadata, which name the options and the input of what
/// was encoded, samples of what was copied, global scales of what was moved, rows of what was
/// decoded. Throws IoError.
std::string difference_from_plan(const Plan& plan, const std::filesystem::path& folder);

/// Returns the files of an output folder without their sizes. The model card is left out, since its
/// name depends on the folder.
WrittenFiles files_of_output(const ModelFolder& model, const Plan& plan);

}  // namespace nvfp4::checkpoint
