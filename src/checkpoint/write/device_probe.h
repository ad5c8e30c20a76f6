#pragma once

#include <chrono>
#include <future>
#include <string>

#include "core/require.h"
#include "nvfp4/device.h"
#include "nvfp4/runtime.h"

namespace nvfp4::checkpoint {

/// Tests whether a device can be used, in the background. A GPU takes a tenth of a second to
/// answer; the lack of one is known at once.
class DeviceProbe {
 public:
  explicit DeviceProbe(Device device) : device_(device) {
    if (device.type == DeviceType::cuda)
      reason_ = std::async(std::launch::async, [device] { return why_unavailable(device); });
  }
  /// Throws UnsupportedError if the device is already known not to be usable.
  void check_what_is_known() {
    constexpr std::chrono::milliseconds kAtOnce{5};
    if (reason_.valid() && reason_.wait_for(kAtOnce) == std::future_status::ready) check();
  }
  /// Waits for the answer. Throws UnsupportedError if the device cannot be used.
  void check() {
    if (!reason_.valid()) return;
    const std::string reason = reason_.get();
    require<UnsupportedError>(reason.empty(), ErrorCode::device_unavailable,
                              "device = {}: {}; hint: --device cpu gives the same bytes",
                              device_name(device_), reason);
  }

 private:
  Device device_;
  std::future<std::string> reason_;
};

}  // namespace nvfp4::checkpoint
