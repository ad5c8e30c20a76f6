#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/formats/format.h"

namespace nvfp4::checkpoint {

/// Reports whether a matrix stored as "x_proj" may be the weight of a linear layer with that name.
bool is_bare_projection(const LogicalTensor& t);
/// Returns the module of an excluded tensor for the lists of exclusions. Null: the tensor is not a
/// weight of a module. `linear`: its Selection counts the tensor as a linear layer.
std::optional<KeptModule> kept_module(const LogicalTensor& t, bool linear);

/// Returns the exact names of the modules that a loader must build unquantized. `lm_head` is added
/// unless an lm_head is quantized. The excluded experts of a layer become one entry to keep the
/// list short. `experts_entry` makes that entry from the name that ends in ".experts".
std::vector<std::string> linear_excludes(const ConfigFacts& facts,
                                         std::string (*experts_entry)(const std::string&));

/// Returns norms and embeddings as globs such as "*.input_layernorm". No glob matches a quantized
/// module.
std::vector<std::string> other_excludes(const ConfigFacts& facts);

/// Returns "model.layers.61.head" for an excluded "model.layers.61.shared_head.head". vLLM's
/// multi-token prediction heads have a prefix that differs from the stored name. An entry that
/// matches a quantized module is left out.
std::vector<std::string> mtp_head_excludes(const ConfigFacts& facts);

/// Returns one line for each exclusion that also hits a quantized module in loaders that compare
/// substrings.
std::vector<std::string> exclude_conflicts(const std::vector<std::string>& excludes,
                                           std::span<const std::string> quantized);

}  // namespace nvfp4::checkpoint
