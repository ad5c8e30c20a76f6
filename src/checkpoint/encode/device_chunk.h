#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/encode/device_rows.h"
#include "core/device_memory.h"

/// Chunks that a device other than the CPU encodes.
namespace nvfp4::checkpoint {

/// Bytes that hold any chunk of a plan.
struct ChunkBytes {
  std::int64_t input = 0, result = 0, weights = 0;
};
ChunkBytes largest_chunk(const Plan& plan);

/// Of all that a unit is encoded from, if that is what is measured: rows without gaps, of a plain
/// type. Else 0.
std::int64_t bytes_on_device(const Plan& plan, const Unit& unit);

/// One chunk on its way through a device. Memory and stream are made once, for chunk after chunk;
/// with two slots in turn, one is read and written while the device works on the other.
class DeviceSlot {
 public:
  DeviceSlot(Device device, const ChunkBytes& most);
  ~DeviceSlot();
  DeviceSlot(const DeviceSlot&) = delete;
  DeviceSlot& operator=(const DeviceSlot&) = delete;

  /// Reads elements [begin, begin + count), measures them, and starts their upload to `there`.
  AmaxResult measure(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                     const Backend& backend, std::byte* there);
  /// Waits for that upload, if one is under way.
  void settle();

  /// Rows [row, row + rows) of the unit: starts upload, kernels and download. `there`: where the
  /// rows lie on the device; null: they are read.
  void begin(const LogicalTensor& tensor, const WeightSlice& slice, std::int64_t row,
             std::int64_t rows, RowsMethod method, std::byte* there);
  /// Waits for them. The same bytes as from encode_chunk(), and the same bits of the error. The
  /// result lies in the slot until begin().
  EncodedChunk finish();

 private:
  std::byte* host_input() const { return static_cast<std::byte*>(host_.data()); }
  std::byte* host_result() const { return host_input() + input_bytes_; }

  Device device_;
  std::int64_t input_bytes_, result_bytes_, weights_bytes_;  // capacities
  PinnedMemory host_;                                        // input, result, weights
  Buffer memory_;                                            // of DeviceLayout
  OwnedStream stream_;
  std::vector<std::byte> strip_;
  bool running_ = false;
  RowsMethod method_;               // of the chunk that is under way
  std::optional<DeviceRows> rows_;  // it
};

}  // namespace nvfp4::checkpoint
