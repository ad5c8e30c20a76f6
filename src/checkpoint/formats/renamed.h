#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/formats/format.h"

/// Loaders may give the modules of a checkpoint other names than it has: transformers 5 makes
/// "visual.blocks.0.attn.qkv" "model.visual.blocks.0.attn.qkv".
namespace nvfp4::checkpoint {

/// Expressions that match the kept modules of towers and projectors, and the output head, whatever
/// stands before their names; then the names that transformers 5 gives to what they leave. None
/// matches a quantized module.
std::vector<std::string> renamed_excludes(const ConfigFacts& facts);

/// The output head that shares the embedding's weight in this family, where it is no "lm_head":
/// transformers builds it as a linear layer though the checkpoint has no such tensor.
std::optional<std::string_view> tied_head(std::span<const std::string> model_types);

}  // namespace nvfp4::checkpoint
