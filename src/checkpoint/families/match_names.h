#pragma once

#include <span>
#include <string_view>

#include "checkpoint/families/name_rule.h"

namespace nvfp4::checkpoint {

using Parts = std::span<const std::string_view>;

/// Whether one of the patterns of a list, as of NameRule, fits the parts of a module's name.
bool matches_one(std::string_view patterns, Where where, Parts parts);
/// Whether one of them is the whole `model_type`.
bool is_model_type(std::string_view patterns, std::string_view model_type);

}  // namespace nvfp4::checkpoint
