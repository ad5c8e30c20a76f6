#pragma once

#include "checkpoint/families/model_config.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Opens the file of statistics and gives each unit what its method needs: Plan::statistics,
/// Unit::statistics and warnings of what is missing. Throws ValueError if the method needs what
/// nothing gives, and for statistics of another model; IoError, FormatError, UnsupportedError.
void supply_statistics(Plan& plan, const TransformOptions& options, const ModelConfig& config);

}  // namespace nvfp4::checkpoint
