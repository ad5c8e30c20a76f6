#include "checkpoint/encode/device_lanes.h"

#include <utility>

namespace nvfp4::checkpoint {

DeviceLanes::DeviceLanes(Device device, const ChunkBytes& most, std::int64_t store, int count,
                         bool wait)
    : wait_(wait), maker_([=, this] { make(device, most, store, count); }) {}

DeviceLanes::~DeviceLanes() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  maker_.join();
}

DeviceLanes::Lease::~Lease() {
  if (!lane_) return;
  const std::lock_guard lock(lanes_.mutex_);
  lanes_.free_.push_back(std::move(lane_));
  lanes_.changed_.notify_one();
}

void DeviceLanes::settle() {
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<DeviceLane>& lane : free_)
    for (DeviceSlot& slot : lane->slots) slot.settle();
}

void DeviceLanes::make(Device device, const ChunkBytes& most, std::int64_t store, int count) {
  for (int i = 0; i < count; ++i) {
    std::unique_ptr<DeviceLane> lane;
    std::exception_ptr failure;
    try {
      if (i == 0 && store > 0)
        for (Buffer& memory : stores_) memory = Buffer(store, device);
      lane = std::make_unique<DeviceLane>(device, most);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    if (lane) free_.push_back(std::move(lane));
    changed_.notify_all();
    if (failure_ || stop_) return;
  }
}

std::unique_ptr<DeviceLane> DeviceLanes::take() {
  std::unique_lock lock(mutex_);
  if (wait_) changed_.wait(lock, [&] { return !free_.empty() || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  if (free_.empty()) return nullptr;
  std::unique_ptr<DeviceLane> lane = std::move(free_.back());
  free_.pop_back();
  return lane;
}

}  // namespace nvfp4::checkpoint
