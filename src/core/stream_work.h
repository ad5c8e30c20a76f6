#pragma once

#include "nvfp4/device.h"
#include "nvfp4/error.h"
#include "nvfp4/runtime.h"

namespace nvfp4 {

/// A guard for work that is enqueued on a stream. It waits for the work when it is destroyed, also
/// after an exception. Memory that the work uses must outlive the guard.
class StreamWork {
 public:
  StreamWork(Device device, Stream stream) : device_(device), stream_(stream) {}
  ~StreamWork() {
    if (waited_) return;
    try {
      synchronize(device_, stream_);
    } catch (const Error&) {
      // The exception that left the block is another one, or the same.
    }
  }
  StreamWork(const StreamWork&) = delete;
  StreamWork& operator=(const StreamWork&) = delete;

  /// Waits for the work without an exception pending. Throws DeviceError.
  void wait() {
    waited_ = true;
    synchronize(device_, stream_);
  }

 private:
  Device device_;
  Stream stream_;
  bool waited_ = false;
};

}  // namespace nvfp4
