#pragma once

#include "backends/backend.h"
#include "checkpoint/write/device_probe.h"

namespace nvfp4::checkpoint {

/// What a run works with: start_run() finds it.
struct RunContext {
  DeviceProbe device;
  const Backend& backend;
};

}  // namespace nvfp4::checkpoint
