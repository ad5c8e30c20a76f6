#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/formats/shard_writer.h"

namespace nvfp4::checkpoint {

/// Where a matrix lies in a tensor of bytes, [width, stride] from `begin` on.
struct StackPlace {
  std::size_t tensor = 0;
  std::int64_t begin = 0, stride = 0;
};

/// Rows [row, row + rows) of a matrix [.., width] become columns there. `columns` is worked in.
void write_columns(ShardWriter& writer, const StackPlace& place, std::int64_t row,
                   std::int64_t rows, std::span<const std::byte> data,
                   std::vector<std::byte>& columns);

}  // namespace nvfp4::checkpoint
