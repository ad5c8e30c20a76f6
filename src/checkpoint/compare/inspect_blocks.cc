#include "checkpoint/compare/inspect_blocks.h"

#include <algorithm>

#include "checkpoint/source/quantized_tensors.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4 {

using namespace checkpoint;

std::vector<InspectedBlock> inspect_blocks(const std::filesystem::path& path,
                                           const std::string& tensor, std::int64_t row,
                                           std::int64_t count) {
  const CheckpointReader reader(path, Naming::stored);
  const LogicalTensor* t = reader.find(tensor);
  if (t == nullptr) t = reader.find(tensor + ".weight");
  require<ValueError>(t != nullptr, ErrorCode::no_such_tensor, "{}: holds no tensor '{}'",
                      path.string(), printable(tensor));
  if (!t->is_nvfp4()) return {};
  const std::int64_t rows = t->matrices() * t->outputs(), blocks = t->depth() / kBlock;
  require<ValueError>(row >= 0 && row < rows, "row = {}, must be in 0..{} for {}", row, rows - 1,
                      printable(t->name));
  std::vector<std::byte> codes(static_cast<std::size_t>(blocks * kBlock / 2));
  std::vector<std::byte> scales(static_cast<std::size_t>(blocks));
  t->read_blocks(row * blocks, codes, scales);
  std::vector<InspectedBlock> out(
      static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, blocks)));
  const bool by_row = static_cast<std::int64_t>(t->globals.size()) == rows && rows != t->matrices();
  const GlobalScale& global =
      by_row ? t->globals[static_cast<std::size_t>(row)] : scale_of(t->globals, row / t->outputs());
  for (std::size_t b = 0; b < out.size(); ++b) {
    InspectedBlock& block = out[b];
    block.row = row;
    block.column = static_cast<std::int64_t>(b) * kBlock;
    block.scale_bits = static_cast<std::uint8_t>(scales[b]);
    block.scale = E4M3{block.scale_bits}.to_float();
    block.global_scale = global.multiplier;
    for (std::size_t i = 0; i < block.elements.size(); ++i) {
      const auto pair = static_cast<unsigned>(codes[b * kBlock / 2 + i / 2]);
      block.elements[i] =
          E2M1{static_cast<std::uint8_t>((i % 2 == 0 ? pair : pair >> 4) & 15)}.to_float();
    }
  }
  return out;
}

}  // namespace nvfp4
