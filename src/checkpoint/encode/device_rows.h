#pragma once

#include <functional>

#include "checkpoint/encode/chunk.h"

/// Rows that a device other than the CPU encodes.
namespace nvfp4::checkpoint {

/// Where on a device all lies that rows are quantized from and to. What comes back is first.
struct DeviceLayout {
  std::int64_t codes = 0, scales = 0, chosen = 0, candidates = 0, errors = 0;
  std::int64_t result_bytes = 0;
  std::int64_t x = 0, channels = 0, multiplier = 0, mse_codes = 0, mse_scales = 0, workspace = 0;
  std::int64_t bytes = 0;

  /// In chunks of `step` rows. `workspace_bytes`: of a method by the Gram matrix; else negative.
  DeviceLayout(DType dtype, const QuantizedShape& shape, std::int64_t step, std::int64_t channels,
               std::int64_t workspace_bytes = -1);
};

/// All that a device does with rows of a unit, whatever their method: from the rows as they are
/// read to chunks as encode_chunk() gives them. Memory, stream and the time to wait are its user's.
class DeviceRows {
 public:
  DeviceRows(Device device, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t step,
             const RowsMethod& method);

  const DeviceLayout& layout() const { return layout_; }
  /// Enqueues it. `there`: where the rows lie on the device; null: they are copied from `here`.
  /// `channels`: RowsMethod::channels(), on the device. `gram`: null without one.
  /// `result`: layout().result_bytes on the host.
  void start(std::byte* memory, const std::byte* here, std::byte* there,
             std::span<const float> channels, const DeviceGramFactor* gram, std::byte* result,
             Stream stream) const;
  /// After that was waited for: the chunks, which lie in `result`.
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
