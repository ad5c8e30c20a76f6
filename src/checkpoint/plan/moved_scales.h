#pragma once

#include "checkpoint/formats/declared.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Returns the element of `scales` for a slice of `t`. A stack has one scale, or one for each
/// matrix.
const GlobalScale& scale_of(const std::vector<GlobalScale>& scales, const LogicalTensor& t,
                            const WeightSlice& slice);

/// Returns the scales of a slice of an NVFP4 weight whose codes are copied. Throws ValueError for a
/// global scale that is not finite and positive. Throws UnsupportedError if each row has a global
/// scale.
MovedScales moved_scales(const LogicalTensor& t, const WeightSlice& slice);

/// Gives a unit its copied scales, and its input scale if the output has one. `declared` is the
/// input's declaration, or null. Throws as moved_scales() does, and ValueError for a weight without
/// an input scale if others have one.
void take_globals(const LogicalTensor& t, const TransformOptions& options, const Declared* declared,
                  Unit& unit);

/// Throws ValueError unless the scale is finite and positive.
void require_usable(const StoredTensor& stored, const GlobalScale& scale);

}  // namespace nvfp4::checkpoint
