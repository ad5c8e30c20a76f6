#pragma once

#include <mutex>
#include <optional>

#include "core/lending_pool.h"
#include "nvfp4/device.h"

namespace nvfp4 {

/// Memory that the calls of a layer reuse. On the CPU there is one object for each concurrent call.
/// On a GPU one object serves all calls, and the caller keeps their work in order.
template <class T>
class Scratch {
 public:
  class Lease {
   public:
    explicit Lease(Scratch& from) {
      if (from.device_.type == DeviceType::cpu) {
        own_.emplace(from.pool_);
        value_ = &**own_;
      } else {
        lock_ = std::unique_lock(from.mutex_);
        value_ = &from.shared_;
      }
    }
    T* operator->() { return value_; }
    T& operator*() { return *value_; }

   private:
    std::optional<typename LendingPool<T>::Lease> own_;
    std::unique_lock<std::mutex> lock_;
    T* value_;
  };

  void set_device(Device device) { device_ = device; }

 private:
  Device device_;
  LendingPool<T> pool_;
  std::mutex mutex_;
  T shared_;
};

}  // namespace nvfp4
