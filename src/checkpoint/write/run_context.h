#pragma once

#include "backends/backend.h"
#include "checkpoint/write/device_probe.h"

namespace nvfp4::checkpoint {

/// The device and the backend of a run. start_run() makes it.
struct RunContext {
  DeviceProbe device;
  const Backend& backend;
};

}  // namespace nvfp4::checkpoint
