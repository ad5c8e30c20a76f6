#pragma once

#include "backends/backend.h"
#include "checkpoint/run/device_probe.h"
#include "nvfp4/run_options.h"

namespace nvfp4::checkpoint {

/// The options of a run, checked before anything is opened, and what it works with.
struct RunContext {
  /// Throws ValueError as check_options() does, UnsupportedError if the device is known not to be
  /// usable.
  explicit RunContext(const RunOptions& options)
      : device((check_options(options), options.device)), backend(find_backend(options.backend)) {
    device.check_what_is_known();
  }
  DeviceProbe device;
  const Backend& backend;
};

}  // namespace nvfp4::checkpoint
