#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/plan/plan.h"
#include "checkpoint/safetensors/written_files.h"

namespace nvfp4::checkpoint {

/// Returns how the shards in `folder` differ from those that the plan would write, or "". It
/// compares names, dtypes, shapes and metadata. The metadata name the options and the input of
/// quantized tensors. It also compares samples of copied tensors, the global scales of weights with
/// copied codes, and the first row of dequantized weights. Throws IoError.
std::string difference_from_plan(const Plan& plan, const std::filesystem::path& folder);

/// Returns the files of an output folder without their sizes. The model card is left out, since its
/// name depends on the folder.
WrittenFiles files_of_output(const ModelFolder& model, const Plan& plan);

/// Returns the text of a file that the run creates, or "" for another file.
std::string text_of_file(const Plan& plan, const std::string& name);
/// Returns the size and hash of a file that the run writes; both are absent for a shard.
WrittenFile planned_file(const ModelFolder& model, const Plan& plan, const std::string& name);

}  // namespace nvfp4::checkpoint
