#pragma once

#include <span>

#include "checkpoint/formats/format.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Puts the plan's units that loaders fuse into groups with one scale, and warns of what breaks
/// them: Plan::groups, warnings and input_amax_fingerprint. Throws IoError, FormatError, ValueError
/// for a file of activation amaxes that cannot be used.
void make_groups(Plan& plan, const TransformOptions& options, std::span<const KeptModule> kept,
                 std::span<const std::string> model_types);

}  // namespace nvfp4::checkpoint
