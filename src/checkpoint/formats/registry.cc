#include <algorithm>
#include <tuple>
#include <utility>

#include "checkpoint/formats/format.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

// One line for each format. Weights are tried in this order: special cases before general ones.
#define NVFP4_FORMATS(X) \
  X(kGguf)               \
  X(kComfyUi)            \
  X(kQuark)              \
  X(kModelOpt)           \
  X(kCompressedTensors)  \
  X(kInt4)               \
  X(kTorchAo)            \
  X(kMlx)                \
  X(kInkling)            \
  X(kMxfp4)              \
  X(kInt8)               \
  X(kFp8)

#define NVFP4_DECLARE(format) extern const CheckpointFormat format;
NVFP4_FORMATS(NVFP4_DECLARE)

namespace {

std::vector<const CheckpointFormat*>& formats() {
#define NVFP4_ADDRESS(format) &(format),
  static std::vector<const CheckpointFormat*> all = {NVFP4_FORMATS(NVFP4_ADDRESS)};
  return all;
}

/// Returns the tensors of a [rows, cols] weight with the names and the arrangement of a scheme.
std::vector<OutputTensor> tensors_of(const WeightNames& names, Scheme scheme,
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
  const auto [codes, code_bytes] = names.words ? std::pair{u32, 4} : std::pair{u8, 1};
  std::vector<OutputTensor> out = {
      {Role::codes, {named(names.codes), codes, {rows, cols / 2 / code_bytes}}},
      {Role::scales, {named(names.scales), names.words ? u8 : f8_e4m3, scales}}};
  if (!names.global.empty())
    out.push_back({Role::weight_global, {named(names.global), f32, scalar}});
  if (scheme == Scheme::w4a4)
    out.push_back({Role::input_global, {named(names.input), f32, scalar}});
  return out;
}

}  // namespace

const std::vector<const CheckpointFormat*>& all_formats() { return formats(); }

AddedFormat::AddedFormat(const CheckpointFormat& format) {
  formats().insert(formats().begin(), &format);
}

AddedFormat::~AddedFormat() { formats().erase(formats().begin()); }

/// The order is the default format, other folders, folders with one file, then single files.
std::vector<const CheckpointFormat*> checkpoint_formats() {
  std::vector<const CheckpointFormat*> written = formats();
  std::erase_if(written, [](const CheckpointFormat* f) { return f->names == nullptr; });
  std::ranges::stable_sort(written, {}, [](const CheckpointFormat* f) {
    return std::tuple(f != &kModelOpt, !f->extension.empty(), !f->single_file.empty());
  });
  return written;
}

std::vector<OutputTensor> CheckpointFormat::tensors(Scheme scheme, const std::string& module,
                                                    std::int64_t rows, std::int64_t cols) const {
  std::vector<OutputTensor> out = tensors_of(*names, scheme, module, rows, cols);
  if (!marker_text.empty())
    out.push_back({Role::marker,
                   {module + std::string(names->marker),
                    safetensors::DType::u8,
                    {static_cast<std::int64_t>(marker_text.size())}}});
  return out;
}

std::vector<OutputTensor> CheckpointFormat::stack_tensors(Scheme scheme, const std::string& stack,
                                                          std::int64_t experts, std::int64_t rows,
                                                          std::int64_t cols) const {
  std::vector<OutputTensor> out = tensors_of(*stack_names, scheme, stack, rows, cols);
  out[0].spec.shape = {experts, cols / 2, rows};
  out[1].spec.shape = {experts, cols / kBlock, rows};
  return out;
}

const CheckpointFormat& checkpoint_format(std::string_view name) {
  std::string known;
  for (const CheckpointFormat* format : checkpoint_formats()) {
    if (format->name == name) return *format;
    known += (known.empty() ? "" : ", ") + std::string(format->name);
  }
  throw ValueError(fmt::format("format = '{}', must be one of {}", name, known),
                   ErrorCode::not_a_choice);
}

const CheckpointFormat& default_checkpoint_format(const std::filesystem::path& output) {
  for (const CheckpointFormat* format : checkpoint_formats())
    if (!format->extension.empty() && output.extension() == format->extension) return *format;
  return kModelOpt;
}

}  // namespace nvfp4::checkpoint
