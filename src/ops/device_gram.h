#pragma once

#include "backends/device_backend.h"
#include "nvfp4/matrix.h"
#include "quantizers/gram_factor.h"

namespace nvfp4 {

/// A GramFactor on a device.
class DeviceGram {
 public:
  DeviceGram() = default;
  /// Copies the factor on the stream. `factor` may be destroyed after the call. Throws DeviceError,
  /// UnsupportedError.
  DeviceGram(const GramFactor& factor, Device device, Stream stream);
  const DeviceGramFactor& view() const { return view_; }

 private:
  Buffer memory_;
  DeviceGramFactor view_;
};

}  // namespace nvfp4
