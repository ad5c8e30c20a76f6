#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "checkpoint/work/chunk.h"
#include "checkpoint/work/method_rows.h"
#include "core/device_memory.h"
#include "ops/device_gram.h"

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

/// The slots with which one thread feeds a device: one chunk runs while the next is read.
struct DeviceLane {
  DeviceLane(Device device, const ChunkBytes& most) : slots{{device, most}, {device, most}} {}
  DeviceSlot slots[2];
  int turn = 0;  ///< the slot that measures next
};

/// Makes lanes in the background, one after the other. A device takes 0.2 to 0.3 s to start;
/// meanwhile the CPU encodes some hundred megabytes.
class DeviceLanes {
 public:
  /// The largest useful number of lanes. More would wait for each other in the driver.
  static constexpr int kMostUseful = 8;

  /// `wait`: threads wait for a lane instead of getting none. `store` is the size of each store in
  /// bytes.
  DeviceLanes(Device device, const ChunkBytes& most, std::int64_t store, int count, bool wait);
  ~DeviceLanes();

  /// Returns one of two pieces of device memory, for the holders of lanes. One holds the window
  /// that is measured, the other the window that is encoded.
  std::byte* store(int i) const { return static_cast<std::byte*>(stores_[i].data()); }
  /// Waits for every upload. No lane may be leased.
  void settle();

  /// A lane for the lifetime of the lease, or none. Throws DeviceError or UnsupportedError if
  /// making a lane failed.
  class Lease {
   public:
    explicit Lease(DeviceLanes& lanes) : lanes_(lanes), lane_(lanes.take()) {}
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    explicit operator bool() const { return lane_ != nullptr; }
    DeviceLane* operator->() { return lane_.get(); }

   private:
    DeviceLanes& lanes_;
    std::unique_ptr<DeviceLane> lane_;
  };

 private:
  void make(Device device, const ChunkBytes& most, std::int64_t store, int count);
  std::unique_ptr<DeviceLane> take();

  const bool wait_;
  Buffer stores_[2];  // allocated before the first lane; outlives the lanes
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<DeviceLane>> free_;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread maker_;  // last, since it uses the members above
};

}  // namespace nvfp4::checkpoint
