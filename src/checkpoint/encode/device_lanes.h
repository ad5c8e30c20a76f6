#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/encode/device_chunk.h"

/// The threads that may use a device, and when.
namespace nvfp4::checkpoint {

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
