#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include "checkpoint/encode/device_rows.h"
#include "core/device_memory.h"
#include "ops/device_gram.h"

namespace nvfp4::checkpoint {

/// Quantizes rows with the Gram matrix of their layer's inputs on a device. It takes enough rows to
/// fill the device, from one thread at a time.
class DeviceGptq {
 public:
  explicit DeviceGptq(Device device) : device_(device) {}

  /// Returns how many rows of `cols` columns fit into the memory budget.
  static std::int64_t most_rows(std::int64_t cols);

  /// Quantizes rows. `finish` receives them in chunks of `step` rows, with the result of
  /// QuantizeWork, in `buffers`.
  void encode(const MatrixRows& rows, std::int64_t step, const RowsMethod& method, Buffers& buffers,
              const std::function<void(std::int64_t chunk, EncodedChunk)>& finish);

 private:
  void put(const GramSlot& gram);

  const Device device_;
  std::mutex mutex_;                   // guards the members below
  std::optional<OwnedStream> stream_;  // made at the first use
  Buffer memory_;
  std::int64_t bytes_ = 0;
  DeviceGram gram_;
  Buffer weights_;
  std::optional<std::size_t> triangle_;  // the triangle of `gram_`
};

}  // namespace nvfp4::checkpoint
