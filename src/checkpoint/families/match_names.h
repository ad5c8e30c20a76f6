#pragma once

#include <span>
#include <string_view>

#include "checkpoint/families/name_rule.h"

namespace nvfp4::checkpoint {

using Parts = std::span<const std::string_view>;

/// Reports whether a pattern of a list, as in NameRule, matches the parts of a module's name.
bool matches_one(std::string_view patterns, Where where, Parts parts);
/// Reports whether a pattern matches the whole `model_type`.
bool is_model_type(std::string_view patterns, std::string_view model_type);

}  // namespace nvfp4::checkpoint
