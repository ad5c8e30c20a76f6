#pragma once

#include <cstdint>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/plan.h"
#include "core/lending_pool.h"

/// Rows of a matrix at a time: read, encoded, written, all while they are in a core's cache.
namespace nvfp4::checkpoint {

/// What one task works in. Kept from task to task.
struct Buffers {
  std::vector<std::byte> input, strip, codes, scales;
};

using BufferPool = LendingPool<Buffers>;

/// Rows of a unit that one task encodes.
std::int64_t rows_per_chunk(const Unit& unit);
/// Elements that one task measures.
std::int64_t elements_per_measure(safetensors::DType dtype);

/// Largest magnitude of the tensor's elements [begin, begin + count).
AmaxResult measure_chunk(const safetensors::File& file, const safetensors::TensorInfo& tensor,
                         std::int64_t begin, std::int64_t count, const Backend& backend,
                         Buffers& buffers);

/// Throws ValueError that names the first non-finite element of [begin, begin + count).
[[noreturn]] void throw_non_finite(const safetensors::File& file,
                                   const safetensors::TensorInfo& tensor, std::int64_t begin,
                                   std::int64_t count);

/// The dense [rows, slice.cols] matrix of rows [row, row + rows) into `out`, which has its size.
void read_rows(const safetensors::File& file, const safetensors::TensorInfo& tensor,
               const WeightSlice& slice, std::int64_t row, std::int64_t rows,
               std::vector<std::byte>& strip, std::span<std::byte> out);

struct EncodedChunk {
  std::span<const std::byte> codes, scales;
  QuantizationError error;
};
/// Encodes rows [row, row + rows) of the unit. The result lies in `buffers`.
EncodedChunk encode_chunk(const safetensors::File& file, const safetensors::TensorInfo& tensor,
                          const WeightSlice& slice, std::int64_t row, std::int64_t rows,
                          const QuantizeOptions& options, Buffers& buffers);

}  // namespace nvfp4::checkpoint
