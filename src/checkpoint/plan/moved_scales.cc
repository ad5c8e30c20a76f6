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

void take_globals(const LogicalTensor& t, const TransformOptions& options, const Declared* declared,
                  Unit& unit) {
  unit.moved = moved_scales(t, unit.slice);
  if (options.scheme == Scheme::nvfp4a16 || t.correction.input) return;
  if (options.task == TransformOptions::Task::quantize && t.inputs.empty())
    return;  // The unit gets an input scale like every quantized unit.
  const std::string* own = declared == nullptr ? nullptr : declared->layer_algorithm(t.module());
  const std::string algorithm = own != nullptr        ? *own
                                : declared != nullptr ? declared->algorithm
                                                      : std::string();
  require<UnsupportedError>(!algorithm.starts_with("W4A8"),
                            "{}: {}, whose input scales are those of FP8; --scheme nvfp4a16 "
                            "leaves them out",
                            t.data.describe(), algorithm);
  if (t.inputs.empty()) {
    const bool wanted =
        declared == nullptr || ActivationsOfModules(*declared).of(t.module()).value_or(true);
    throw ValueError(
        fmt::format("{}: has no input scale, others have one; {}--scheme nvfp4a16 leaves out the "
                    "others",
                    t.data.describe(), wanted ? "nvfp4 repair supplies it, and " : ""));
  }
  unit.input = scale_of(t.inputs, t, unit.slice);
  require_usable(t.input, *unit.input);
}

}  // namespace nvfp4::checkpoint
