#include <algorithm>
#include <charconv>
#include <utility>

#include "checkpoint/formats/format.h"
#include "checkpoint/run/transform.h"
#include "core/printable.h"
#include "core/require.h"
#include "nvfp4/checkpoint/checkpoint.h"

namespace nvfp4 {

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const Method& method : methods()) names.emplace_back(method.name);
  return names;
}

std::vector<FormatInfo> output_formats() {
  std::vector<FormatInfo> formats;
  for (const checkpoint::CheckpointFormat* f : checkpoint::checkpoint_formats())
    formats.push_back({std::string(f->name), std::string(f->note), std::string(f->extension)});
  return formats;
}

std::string default_format(const std::filesystem::path& output) {
  return std::string(checkpoint::default_checkpoint_format(output).name);
}

std::uint64_t size_from_text(const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},      {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  const auto* known = std::ranges::find(kUnits, unit, &std::pair<std::string_view, double>::first);
  require<ValueError>(error == std::errc{} && known != std::end(kUnits) && number >= 0 &&
                          number * known->second < 0x1p62,
                      "size = '{}', must be a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB",
                      printable(text));
  return static_cast<std::uint64_t>(number * known->second);
}

QuantizeReport quantize_checkpoint(const QuantizeCheckpointOptions& options) {
  return checkpoint::transform_checkpoint({options});
}

}  // namespace nvfp4
