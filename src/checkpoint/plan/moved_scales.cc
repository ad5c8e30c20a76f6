#include "checkpoint/plan/moved_scales.h"

#include "core/require.h"

namespace nvfp4::checkpoint {

const GlobalScale& scale_of(const std::vector<GlobalScale>& scales, const LogicalTensor& t,
                            const WeightSlice& slice) {
  return scale_of(scales, scales.size() == 1 ? 0 : slice.offset / (t.rows() * t.cols()));
}

void require_usable(const StoredTensor& stored, const GlobalScale& scale) {
  require<ValueError>(is_valid(scale),
                      "{} = {} (as a multiplier), must be > 0 and finite, and so its reciprocal; "
                      "nvfp4 verify says more",
                      stored.describe(), scale.multiplier);
}

MovedScales moved_scales(const LogicalTensor& t, const WeightSlice& slice) {
  require<UnsupportedError>(
      static_cast<std::int64_t>(t.globals.size()) <= t.matrices(),
      "{}: {} global scales, one for each row, which no format written here has",
      t.global.describe(), t.globals.size());
  const GlobalScale& own = scale_of(t.globals, t, slice);
  MovedScales moved;
  moved.own = own.multiplier;
  moved.global = t.correction.global.value_or(own);
  require_usable(t.global, moved.global);
  moved.changes = t.correction.changes_scales();
  if (t.correction.global) moved.ratio = moved.own / moved.global.multiplier;
  return moved;
}

}  // namespace nvfp4::checkpoint
