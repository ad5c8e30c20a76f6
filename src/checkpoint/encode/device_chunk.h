#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/encode/device_rows.h"
#include "core/device_memory.h"

/// Chunks that a device other than the CPU encodes.
namespace nvfp4::checkpoint {

/// The sizes, in bytes, that hold every chunk of a plan.
struct ChunkBytes {
  std::int64_t input = 0, result = 0, weights = 0;

  /// Makes room for the first chunk of a matrix. `weighted`: its input channels have weights.
  void add(const MatrixRows& chunk, bool weighted);
};

/// Returns the size of a matrix on the device, in bytes. Returns 0 unless the matrix equals the
/// measured elements: rows without gaps, of a plain dtype.
std::int64_t bytes_on_device(const LogicalTensor& source, const WeightSlice& slice);

/// A chunk on a device. Memory and stream are made once for many chunks. Of two slots, one is read
/// and written by the host while the device works on the other.
class DeviceSlot {
 public:
  DeviceSlot(Device device, const ChunkBytes& most);
  ~DeviceSlot();
  DeviceSlot(const DeviceSlot&) = delete;
  DeviceSlot& operator=(const DeviceSlot&) = delete;

  /// Reads elements [begin, begin + count), measures them and starts their upload to `there`.
  AmaxResult measure(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                     const Backend& backend, std::byte* there);
  /// Waits for the upload of measure(), if one is running.
  void settle();

  /// Starts upload, kernels and download of rows. `there` is the address of the rows on the device.
  /// If it is null, the rows are read and uploaded.
  void begin(const MatrixRows& rows, RowsMethod method, std::byte* there);
  /// Waits for begin() and returns the same bytes and the same bits of the error as QuantizeWork.
  /// The result is in the slot until the next begin().
  EncodedChunk finish();

 private:
  std::byte* host_input() const { return static_cast<std::byte*>(host_.data()); }
  std::byte* host_result() const { return host_input() + input_bytes_; }

  Device device_;
  std::int64_t input_bytes_, result_bytes_, weights_bytes_;  // capacities
  PinnedMemory host_;                                        // input, result, weights
  Buffer memory_;                                            // arranged by DeviceLayout
  OwnedStream stream_;
  std::vector<std::byte> strip_;
  bool running_ = false;
  RowsMethod method_;               // the method of the running chunk
  std::optional<DeviceRows> rows_;  // the running chunk
};

}  // namespace nvfp4::checkpoint
