#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/encode/device_chunk.h"

/// Who may use a device, and from when on.
namespace nvfp4::checkpoint {

/// What one thread feeds a device with: one chunk is under way while the next is read.
struct DeviceLane {
  DeviceLane(Device device, const ChunkBytes& most) : slots{{device, most}, {device, most}} {}
  DeviceSlot slots[2];
  int turn = 0;  ///< the slot that measures next
};

/// Makes lanes in the background, one after the other: a device takes 0.2 to 0.3 s to start,
/// in which the CPU encodes some hundred megabytes.
class DeviceLanes {
 public:
  /// More do not make a device faster: they wait for each other in its driver.
  static constexpr int kMostUseful = 8;

  /// `wait`: threads wait for a lane rather than get none. `store`: bytes of each store.
  DeviceLanes(Device device, const ChunkBytes& most, std::int64_t store, int count, bool wait);
  ~DeviceLanes();

  /// Two pieces of memory on the device, for who has a lane: what is measured waits in one, what is
  /// encoded lies in the other.
  std::byte* store(int i) const { return static_cast<std::byte*>(stores_[i].data()); }
  /// Waits for every upload. No lane is lent.
  void settle();

  /// A lane for as long as it lives, or none. Throws DeviceError, UnsupportedError if making one
  /// has failed.
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
  Buffer stores_[2];  // before there is a lane; outlive them
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<DeviceLane>> free_;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread maker_;  // last: it uses what is above
};

}  // namespace nvfp4::checkpoint
