#include "checkpoint/write/stack_columns.h"

#include <algorithm>

#include "checkpoint/io/grow.h"

namespace nvfp4::checkpoint {

void write_columns(ShardWriter& writer, const StackPlace& place, std::int64_t row,
                   std::int64_t rows, std::span<const std::byte> data,
                   std::vector<std::byte>& columns) {
  constexpr std::int64_t kTile = 32;  // keeps both sides in the cache
  const std::int64_t width = static_cast<std::int64_t>(data.size()) / rows;
  const std::span<std::byte> out = grow(columns, rows * width);
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (std::int64_t c0 = 0; c0 < width; c0 += kTile)
      for (std::int64_t c = c0; c < std::min(c0 + kTile, width); ++c)
        for (std::int64_t r = r0; r < std::min(r0 + kTile, rows); ++r)
          out[static_cast<std::size_t>(c * rows + r)] =
              data[static_cast<std::size_t>(r * width + c)];
  const std::int64_t lines = rows == place.stride ? 1 : width;  // A whole matrix is one piece.
  const std::int64_t bytes = rows * width / lines;
  for (std::int64_t i = 0; i < lines; ++i)
    writer.write(place.tensor, static_cast<std::uint64_t>(place.begin + i * place.stride + row),
                 out.subspan(static_cast<std::size_t>(i * bytes), static_cast<std::size_t>(bytes)));
}

}  // namespace nvfp4::checkpoint
