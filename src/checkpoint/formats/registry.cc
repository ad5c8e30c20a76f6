#include "checkpoint/formats/format.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

std::span<const CheckpointFormat* const> checkpoint_formats() {
  static const CheckpointFormat* const formats[] = {
      &kModelOpt,
      &kCompressedTensors,
      &kComfyUi,
      &kGguf,
  };
  return formats;
}

std::span<const WeightNames* const> weight_names() {
  // Special cases before the general ones.
  static const WeightNames* const names[] = {
      &kGgufNames,       &kComfyUiNames,           &kQuarkNames,
      &kModelOptNames,   &kCompressedTensorsNames, &kGptOssNames,
      &kMxfp4ShortNames, &kMxfp4PackedNames,       &kFp8InverseNames,
      &kFp8Names,        &kFp8ShortNames,          &kModelOptStackNames,
  };
  return names;
}

std::vector<OutputTensor> nvfp4_tensors(const WeightNames& names, Scheme scheme,
                                        const std::string& module, std::int64_t rows,
                                        std::int64_t cols) {
  using enum safetensors::DType;
  using Shape = std::vector<std::int64_t>;
  const auto named = [&](std::string_view suffix) { return module + std::string(suffix); };
  const std::int64_t blocks = cols / kBlock;
  const bool tiled = names.arrangement.scales != ScaleLayout::linear;
  const Shape scales = {tiled ? round_up(rows, 128) : rows, tiled ? round_up(blocks, 4) : blocks};
  // compressed-tensors stores its scalars as vectors of one.
  const Shape scalar = names.divisors ? Shape{1} : Shape{};
  std::vector<OutputTensor> out = {{Role::codes, {named(names.codes), u8, {rows, cols / 2}}},
                                   {Role::scales, {named(names.scales), f8_e4m3, scales}},
                                   {Role::weight_global, {named(names.global), f32, scalar}}};
  if (scheme == Scheme::nvfp4)
    out.push_back({Role::input_global, {named(names.input), f32, scalar}});
  return out;
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
