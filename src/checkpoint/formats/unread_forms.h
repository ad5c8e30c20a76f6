#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/logical_tensor.h"

/// Tensors that belong to weights in forms that are not supported.
namespace nvfp4::checkpoint {

/// Returns dtype and shape for messages: "U8 [64, 32]".
std::string form_of(const StoredTensor& tensor);

/// Returns the defect of a weight in a form that is not supported, named by one of its tensors.
/// `beside` is another tensor of the weight, for the message, or null.
Defect unread_weight(const StoredTensor& tensor, const StoredTensor& beside, std::string_view form);

/// Returns that defect if a configuration declares a form of NVFP4 that is not read, or an unknown
/// form of weights that are all plain.
std::optional<Defect> unread_declaration(const Declared& declared,
                                         std::span<const LogicalTensor> tensors);

/// Tensors that were read as parts of a weight.
using ReadParts = std::unordered_set<const safetensors::TensorInfo*>;

/// One tensor with the name of scales for each module, where no form reads it.
using ModuleScales = std::unordered_map<std::string_view, StoredTensor>;

/// Returns the scales of modules that are not in `read`.
ModuleScales unread_scales(const TensorTable& table, const ReadParts& read);

/// Returns that defect if the tensor belongs to such a weight. Otherwise the tensor may be copied
/// or read as values.
std::optional<Defect> find_unread_weight(const TensorTable& table, const StoredTensor& tensor,
                                         const ModuleScales& module_scales);

/// Returns the module of a tensor: "m" for "m.weight", "m.weight._data" and "m.weight.scale".
std::string_view owner_of(std::string_view name);

/// Reports whether the name is that of a scale, a zero point or a shape of a quantized weight.
bool is_companion(std::string_view name);
/// Reports whether the name is that of a zero point.
bool is_zero_point(std::string_view name);

/// Reports whether the tensor has codes of DeepSeek-V4 without scales. lost_fp8_scales() reports
/// them.
bool is_lost_native(const StoredTensor& tensor);
/// Returns the name of the scales that packed codes need, or "" if they exist.
std::string lost_scales_of(const TensorTable& table, const StoredTensor& tensor);

/// Reports whether a tensor has integers of at most 32 bits and is not in the table of known ones.
bool is_unknown_integer(const StoredTensor& tensor);

}  // namespace nvfp4::checkpoint
