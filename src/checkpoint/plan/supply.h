#pragma once

#include "checkpoint/families/model_config.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Gives each unit what its method needs of Plan::statistics, the file opened: Unit::statistics,
/// their fingerprint and warnings of what is missing. Throws ValueError if the method needs what
/// nothing gives, and for statistics of another model; IoError, FormatError, UnsupportedError.
void supply_statistics(Plan& plan, const TransformOptions& options);

}  // namespace nvfp4::checkpoint
