#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/plan.h"

/// Rows of a matrix at a time: read, encoded, written, all while they are in a core's cache.
namespace nvfp4::checkpoint {

/// What one task works in. Kept from task to task.
struct Buffers {
  std::vector<std::byte> input, strip, codes, scales;
};

/// Lends Buffers to tasks, as many as run at a time.
class BufferPool {
 public:
  class Lease {
   public:
    explicit Lease(BufferPool& pool) : pool_(pool), buffers_(pool.take()) {}
    ~Lease() { pool_.give(std::move(buffers_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Buffers* operator->() { return &buffers_; }
    Buffers& operator*() { return buffers_; }

   private:
    BufferPool& pool_;
    Buffers buffers_;
  };

 private:
  Buffers take();
  void give(Buffers&& buffers);
  std::mutex mutex_;
  std::vector<Buffers> free_;
};

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

struct EncodedChunk {
  std::span<const std::byte> codes, scales;
  QuantizationError error;
};
/// Encodes rows [row, row + rows) of the unit. The result lies in `buffers`.
EncodedChunk encode_chunk(const safetensors::File& file, const safetensors::TensorInfo& tensor,
                          const WeightSlice& slice, std::int64_t row, std::int64_t rows,
                          const QuantizeOptions& options, Buffers& buffers);

}  // namespace nvfp4::checkpoint
