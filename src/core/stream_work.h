#pragma once

#include "nvfp4/device.h"
#include "nvfp4/error.h"
#include "nvfp4/runtime.h"

namespace nvfp4 {

/// What is enqueued on a stream while this lives, and uses memory that lives longer. Whatever ends
/// the block, an exception too, the work is waited for: memory must not go under it.
class StreamWork {
 public:
  StreamWork(Device device, Stream stream) : device_(device), stream_(stream) {}
  ~StreamWork() {
    if (waited_) return;
    try {
      synchronize(device_, stream_);
    } catch (const Error&) {
      // The error that left the block was another one, or is the same.
    }
  }
  StreamWork(const StreamWork&) = delete;
  StreamWork& operator=(const StreamWork&) = delete;

  /// At the end of the block. Throws DeviceError.
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
