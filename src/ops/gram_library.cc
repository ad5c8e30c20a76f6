#include "ops/gram_library.h"

#include <cstdlib>

#include "backends/device_backend.h"
#include "core/require.h"

namespace nvfp4 {

GramLibrary gram_library(Device device) {
  const char* const text = std::getenv("NVFP4_FACTORS");
  const std::string wanted = text == nullptr ? "" : text;
  require<ValueError>(wanted.empty() || wanted == "eigen" || wanted == "cusolver",
                      "NVFP4_FACTORS = \"{}\", must be eigen or cusolver", wanted);
  if (wanted == "eigen" || device.type == DeviceType::cpu) return {};
  const DeviceBackend& backend = device_backend(device);
  const DeviceSolver* const solver = backend.solver == nullptr ? nullptr : backend.solver();
  const std::string reason =
      solver == nullptr ? "the device has no such library" : solver->why_unusable();
  require<UnsupportedError>(reason.empty() || wanted.empty(), "NVFP4_FACTORS = cusolver: {}",
                            reason);
  if (!reason.empty()) return {};
  return {solver->name(), [solver, device](double* h, std::int64_t n) {
            try {
              return solver->invert_lower(h, n, device);
            } catch (const DeviceError& e) {
              throw DeviceError(
                  fmt::format("{}; NVFP4_FACTORS=eigen factors on the CPU instead", e.what()),
                  e.code);
            }
          }};
}

}  // namespace nvfp4
