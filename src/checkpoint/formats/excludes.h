#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/formats/format.h"

/// Lists of the modules that loaders must build unquantized. An entry is the end of a name, with
/// any prefix, because loaders put other prefixes before the names of a checkpoint.
namespace nvfp4::checkpoint {

/// Reports whether a matrix stored as "x_proj" may be the weight of a linear layer with that name.
bool is_bare_projection(const LogicalTensor& t);
/// Returns the module of an excluded tensor for the lists of exclusions. Null: the tensor is not a
/// weight of a module. `linear`: its Selection counts the tensor as a linear layer.
std::optional<KeptModule> kept_module(const LogicalTensor& t, bool linear);

/// Throws UnsupportedError if a loader would read the name of a module as a pattern.
void require_plain_names(const ConfigFacts& facts, const std::string& model);

struct ExcludeList {
  std::vector<std::string> entries;
  std::vector<std::string>
      conflicts;  ///< a line for each entry that also excludes what is quantized
};

/// Returns the globs of ModelOpt, such as "*visual*". They match all excluded modules and the
/// layers that engines fuse from them. No glob matches a quantized module or one of its parts, for
/// vLLM, SGLang and TensorRT-LLM. "lm_head" is added unless an lm_head is quantized.
ExcludeList exclude_globs(const ConfigFacts& facts);

/// Returns the expressions of compressed-tensors, such as "re:(.*\.)?visual\..*". They match the
/// excluded linear layers, and no quantized module. "lm_head" is added as for exclude_globs().
std::vector<std::string> exclude_expressions(const ConfigFacts& facts);

}  // namespace nvfp4::checkpoint
