#pragma once

#include <functional>

#include "checkpoint/work/chunk.h"
#include "checkpoint/work/method_rows.h"

/// Rows that a device other than the CPU encodes.
namespace nvfp4::checkpoint {

/// The offsets of all data of some rows in device memory. The part that is copied back comes first.
struct DeviceLayout {
  std::int64_t codes = 0, scales = 0, chosen = 0, candidates = 0, errors = 0;
  std::int64_t result_bytes = 0;
  std::int64_t x = 0, channels = 0, multiplier = 0, mse_codes = 0, mse_scales = 0, workspace = 0;
  std::int64_t bytes = 0;

  /// Makes the layout for chunks of `step` rows. `workspace_bytes` is that of a Gram-matrix method,
  /// otherwise negative.
  DeviceLayout(DType dtype, const QuantizedShape& shape, std::int64_t step, std::int64_t channels,
               std::int64_t workspace_bytes = -1);
};

/// The work of a device on rows of a matrix, for every method. It begins with the rows as they are
/// read and ends with the chunks of QuantizeWork. The caller provides memory and stream, and
/// waits.
class DeviceRows {
 public:
  DeviceRows(Device device, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t step,
             const RowsMethod& method);

  const DeviceLayout& layout() const { return layout_; }
  /// Enqueues the work. `there` is the address of the rows on the device; if it is null, they are
  /// copied from `here`. `channels` is RowsMethod::channels() on the device. `gram` is null without
  /// a Gram matrix. `result` has layout().result_bytes on the host.
  void start(std::byte* memory, const std::byte* here, std::byte* there,
             std::span<const float> channels, const DeviceGramFactor* gram, std::byte* result,
             Stream stream) const;
  /// Passes the chunks to `finish`; they are in `result`. The caller must have waited for start().
  void finish(std::byte* result,
              const std::function<void(std::int64_t chunk, EncodedChunk)>& finish) const;

 private:
  QuantizedShape part(std::int64_t chunk) const;

  Device device_;
  DType dtype_;
  QuantizedShape shape_;
  std::int64_t step_;
  const RowsMethod* method_;
  DeviceLayout layout_;
};

}  // namespace nvfp4::checkpoint
