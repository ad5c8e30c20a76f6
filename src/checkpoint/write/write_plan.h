#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/output/output.h"
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

/// The device and the backend of a run. start_run() makes it.
struct RunContext {
  DeviceProbe device;
  const Backend& backend;
};

struct Written {
  std::vector<Outcome> outcomes;  ///< outcome of each tensor of the plan
  std::string warning;  ///< about values that need --allow broken-scales; empty if there are none
};

/// Writes the shards that the output does not have yet. Memory is bounded: windows have about 100
/// MB of input, and one is encoded while the next is measured. `before_commit` is called when all
/// bytes of a shard are written, before the output records it. The result does not depend on the
/// number of threads or on the device. Throws FormatError for FP8 codes that are NaN unless
/// options.allow.broken_scales is set.
Written write_shards(const Plan& plan, const TransformOptions& options, Output& output,
                     const std::function<void()>& before_commit);

/// Writes the output of a plan and returns the report. With `dry_run` it only checks whether that
/// is possible. Writing frees the plan's units and groups.
QuantizeReport write_plan(Plan& plan, const TransformOptions& options, RunContext& run,
                          Output& output);

}  // namespace nvfp4::checkpoint
