#include <algorithm>

#include "checkpoint/io/grow.h"
#include "checkpoint/work/work.h"

namespace nvfp4::checkpoint {
namespace {

/// Writes rows [row, row + rows) of a matrix as columns of a tensor of bytes, [width, stride] from
/// `begin` on.
void write_columns(ShardWriter& writer, std::size_t tensor, std::int64_t begin, std::int64_t stride,
                   const MatrixRows& of, std::span<const std::byte> data,
                   std::vector<std::byte>& columns) {
  constexpr std::int64_t kTile = 32;  // keeps both sides in the cache
  const std::int64_t row = of.row, rows = of.rows;
  const std::int64_t width = static_cast<std::int64_t>(data.size()) / rows;
  const std::span<std::byte> out = grow(columns, rows * width);
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (std::int64_t c0 = 0; c0 < width; c0 += kTile)
      for (std::int64_t c = c0; c < std::min(c0 + kTile, width); ++c)
        for (std::int64_t r = r0; r < std::min(r0 + kTile, rows); ++r)
          out[static_cast<std::size_t>(c * rows + r)] =
              data[static_cast<std::size_t>(r * width + c)];
  const std::int64_t lines = rows == stride ? 1 : width;  // A whole matrix is one piece.
  const std::int64_t bytes = rows * width / lines;
  for (std::int64_t i = 0; i < lines; ++i)
    writer.write(tensor, static_cast<std::uint64_t>(begin + i * stride + row),
                 out.subspan(static_cast<std::size_t>(i * bytes), static_cast<std::size_t>(bytes)));
}

/// Rearranges the codes and scales of rows as the format stores them. Codes are changed in place;
/// `tiles` is memory for the scales.
void arrange(const Arrangement& arrangement, std::int64_t rows, std::int64_t blocks,
             EncodedChunk& chunk, std::vector<std::byte>& tiles) {
  if (arrangement.high_nibble_first)
    for (std::byte& pair : chunk.codes) pair = pair << 4 | pair >> 4;
  if (arrangement.scales == ScaleLayout::linear) return;
  const auto out = grow(tiles, scale_bytes(arrangement.scales, rows, blocks));
  const auto bytes = [](std::span<std::byte> span) {
    return std::span(reinterpret_cast<std::uint8_t*>(span.data()), span.size());
  };
  relayout_scales(bytes(chunk.scales), ScaleLayout::linear, bytes(out), arrangement.scales, rows,
                  blocks);
  chunk.scales = out;
}

}  // namespace

std::int64_t Nvfp4Work::chunk_elements(const WeightSlice& slice) const {
  return output_.stack_rows > 0 ? 4 * kTransposedChunkElements : MatrixWork::chunk_elements(slice);
}

void Nvfp4Work::write(const MatrixOutput& to, const MatrixRows& rows, EncodedChunk& chunk,
                      std::vector<std::byte>& room) const {
  const Places& places = to.places;
  if (output_.stack_rows > 0) {
    write_columns(to.writer, places.codes, output_.stack_begin / 2, output_.stack_rows, rows,
                  chunk.codes, room);
    write_columns(to.writer, places.scales, output_.stack_begin / kBlock, output_.stack_rows, rows,
                  chunk.scales, room);
    return;
  }
  const std::int64_t blocks = rows.slice.cols / kBlock;
  const Arrangement& arrangement = to.format->names->arrangement;
  arrange(arrangement, rows.rows, blocks, chunk, room);
  const std::int64_t row = output_.first_row + rows.row;
  to.writer.write_blocks(places.codes, static_cast<std::uint64_t>(row * rows.slice.cols / 2),
                         chunk.codes, places.scales,
                         static_cast<std::uint64_t>(scale_bytes(arrangement.scales, row, blocks)),
                         chunk.scales);
}

void Nvfp4Work::write_scales(const MatrixOutput& to, const GlobalScale& global) const {
  to.write(to.places.weight_global, to.format->stored_global(global));
  to.write(to.places.input_global, to.format->stored_global(output_.input));
  to.write(to.places.marker, to.format->marker_text);
}

}  // namespace nvfp4::checkpoint
