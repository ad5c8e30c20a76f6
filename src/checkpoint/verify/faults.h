#pragma once

#include <span>
#include <string>

#include "checkpoint/formats/logical_tensor.h"

namespace nvfp4::checkpoint {

/// What verify calls broken in a source must not come out as if it were whole: FormatError, unless
/// the values are taken by `force`; then the warning of it, "" if nothing is broken. `inputs`:
/// input scales count. `ignores`: weights can be left out by --ignore.
std::string take_faults(std::span<const LogicalTensor> tensors, bool force, bool inputs,
                        bool ignores);

}  // namespace nvfp4::checkpoint
