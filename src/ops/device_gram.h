#pragma once

#include "backends/device_backend.h"
#include "nvfp4/matrix.h"
#include "quantizers/gram_factor.h"

namespace nvfp4 {

/// A GramFactor on a device.
class DeviceGram {
 public:
  DeviceGram() = default;
  /// Copies on the stream; `factor` may go at once. Throws DeviceError, UnsupportedError.
  DeviceGram(const GramFactor& factor, Device device, Stream stream);
  const DeviceGramFactor& view() const { return view_; }

 private:
  Buffer memory_;
  DeviceGramFactor view_;
};

}  // namespace nvfp4
