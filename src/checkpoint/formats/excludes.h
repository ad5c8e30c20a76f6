#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/formats/format.h"

namespace nvfp4::checkpoint {

/// Whether a matrix that is stored as "x_proj" may be the weight of a linear layer of that name.
bool is_bare_projection(const LogicalTensor& t);
/// What lists of exclusions have to know of a tensor that stays as it is; `linear`: by its
/// Selection. Nothing if it is no weight of a module.
std::optional<KeptModule> kept_module(const LogicalTensor& t, bool linear);

/// Exact names of the modules that a loader must build unquantized, and `lm_head` unless one
/// is quantized. Experts are many: all kept experts of a layer become one entry, which
/// `experts_entry` makes from the name that ends in ".experts".
std::vector<std::string> linear_excludes(const ConfigFacts& facts,
                                         std::string (*experts_entry)(const std::string&));

/// Norms and embeddings as globs, "*.input_layernorm", that match no quantized module.
std::vector<std::string> other_excludes(const ConfigFacts& facts);

/// "model.layers.61.head" for a kept "model.layers.61.shared_head.head", unless it would match a
/// quantized module: vLLM's multi-token prediction heads have a prefix that differs from the name.
std::vector<std::string> mtp_head_excludes(const ConfigFacts& facts);

/// Exclusions that some loaders, which look for substrings, would also apply to a quantized
/// module. One line each.
std::vector<std::string> exclude_conflicts(const std::vector<std::string>& excludes,
                                           std::span<const std::string> quantized);

}  // namespace nvfp4::checkpoint
