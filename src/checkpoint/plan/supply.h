#pragma once

#include "checkpoint/families/model_config.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Sets Unit::statistics, the fingerprint and warnings of missing statistics. Plan::statistics must
/// be open. Throws ValueError if the method needs statistics that are not given, or for those of
/// another model. Also throws IoError, FormatError and UnsupportedError.
void supply_statistics(Plan& plan, const TransformOptions& options);

}  // namespace nvfp4::checkpoint
