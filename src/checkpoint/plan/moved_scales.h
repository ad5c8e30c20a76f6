#pragma once

#include "checkpoint/formats/declared.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// The one of `scales` that a slice of `t` has: a stack has one for all matrices, or one for each.
const GlobalScale& scale_of(const std::vector<GlobalScale>& scales, const LogicalTensor& t,
                            const WeightSlice& slice);

/// The scales with which a slice of an NVFP4 weight moves. Throws ValueError for a global scale
/// that is not finite and positive, UnsupportedError for one of each row.
MovedScales moved_scales(const LogicalTensor& t, const WeightSlice& slice);

/// Gives a unit that moves its scales, and its input scale where the output has one. `declared`:
/// what the input says of itself, or null. Throws as moved_scales() does, and for a weight without
/// an input scale beside others that have one.
void take_globals(const LogicalTensor& t, const TransformOptions& options, const Declared* declared,
                  Unit& unit);

/// Throws ValueError unless the scale is finite and positive.
void require_usable(const StoredTensor& stored, const GlobalScale& scale);

}  // namespace nvfp4::checkpoint
