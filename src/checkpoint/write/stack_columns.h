#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/formats/shard_writer.h"

namespace nvfp4::checkpoint {

/// The place of a matrix in a tensor of bytes: [width, stride] from `begin` on.
struct StackPlace {
  std::size_t tensor = 0;
  std::int64_t begin = 0, stride = 0;
};

/// Writes rows [row, row + rows) of a matrix [.., width] as columns of the stack. `columns` is
/// working memory.
void write_columns(ShardWriter& writer, const StackPlace& place, std::int64_t row,
                   std::int64_t rows, std::span<const std::byte> data,
                   std::vector<std::byte>& columns);

}  // namespace nvfp4::checkpoint
