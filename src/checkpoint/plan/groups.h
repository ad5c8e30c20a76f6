#pragma once

#include <span>

#include "checkpoint/formats/format.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Puts units that loaders fuse into groups with one scale. It fills Plan::groups,
/// input_amax_fingerprint and warnings of groups that are broken. Throws IoError, FormatError or
/// ValueError for a file of activation amaxes that cannot be used.
void make_groups(Plan& plan, const TransformOptions& options, std::span<const KeptModule> kept,
                 std::span<const std::string> model_types);

}  // namespace nvfp4::checkpoint
