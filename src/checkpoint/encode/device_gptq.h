#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include "checkpoint/encode/device_rows.h"
#include "core/device_memory.h"
#include "ops/device_gram.h"

namespace nvfp4::checkpoint {

/// Rows quantized by the Gram matrix of their layer's inputs on a device: as many at a time as fill
/// it, for one thread after the other.
class DeviceGptq {
 public:
  explicit DeviceGptq(Device device) : device_(device) {}

  /// Of a unit of so many columns: rows that the memory for them allows.
  static std::int64_t most_rows(std::int64_t cols);

  /// Rows [row, row + rows) of the unit. `finish` gets them in chunks of `step` rows: what
  /// encode_chunk() gives, in `buffers`.
  void encode(const LogicalTensor& tensor, const WeightSlice& slice, std::int64_t row,
              std::int64_t rows, std::int64_t step, const RowsMethod& method, Buffers& buffers,
              const std::function<void(std::int64_t chunk, EncodedChunk)>& finish);

 private:
  void put(const GramSlot& gram);

  const Device device_;
  std::mutex mutex_;                   // of what follows
  std::optional<OwnedStream> stream_;  // made when it is needed
  Buffer memory_;
  std::int64_t bytes_ = 0;
  DeviceGram gram_;
  Buffer weights_;
  std::optional<std::size_t> triangle_;  // that gram_ is of
};

}  // namespace nvfp4::checkpoint
