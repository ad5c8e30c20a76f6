#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/formats/format.h"

/// Names of modules in loaders that rename the modules of a checkpoint. For example, transformers 5
/// renames "visual.blocks.0.attn.qkv" to "model.visual.blocks.0.attn.qkv".
namespace nvfp4::checkpoint {

/// Returns expressions for the excluded modules of towers and projectors, and for the output head,
/// with any prefix. The names in transformers 5 of the other excluded modules follow. No entry
/// matches a quantized module.
std::vector<std::string> renamed_excludes(const ConfigFacts& facts);

/// Returns the output head that shares the embedding's weight in this family, if its name is not
/// "lm_head". transformers builds it as a linear layer although the checkpoint has no such tensor.
std::optional<std::string_view> tied_head(std::span<const std::string> model_types);

}  // namespace nvfp4::checkpoint
