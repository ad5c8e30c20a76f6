#include "checkpoint/schemes/scheme.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

std::span<const CheckpointFormat* const> checkpoint_formats() {
  static const CheckpointFormat* const formats[] = {
      &kModelOpt,
      &kCompressedTensors,
  };
  return formats;
}

std::span<const WeightNames* const> weight_names() {
  // Special cases before the general ones.
  static const WeightNames* const names[] = {
      &kComfyUiNames, &kQuarkNames,      &kModelOptNames,    &kCompressedTensorsNames,
      &kGptOssNames,  &kMxfp4ShortNames, &kMxfp4PackedNames, &kFp8InverseNames,
      &kFp8Names,     &kFp8ShortNames,
  };
  return names;
}

const CheckpointFormat& checkpoint_format(std::string_view name) {
  std::string known;
  for (const CheckpointFormat* format : checkpoint_formats()) {
    if (format->name == name) return *format;
    known += (known.empty() ? "" : ", ") + std::string(format->name);
  }
  throw ValueError(fmt::format("format = {}, must be one of {}", name, known));
}

}  // namespace nvfp4::checkpoint
