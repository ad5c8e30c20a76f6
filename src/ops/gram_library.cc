#include "ops/gram_library.h"

#include <cstdlib>

#include "backends/device_backend.h"
#include "core/require.h"

namespace nvfp4 {

bool wants_gram_library(Device device) {
  const char* const text = std::getenv("NVFP4_FACTORS");
  const std::string wanted = text == nullptr ? "" : text;
  require<ValueError>(wanted.empty() || wanted == "eigen" || wanted == "cusolver",
                      "NVFP4_FACTORS = \"{}\", must be eigen or cusolver", wanted);
  return wanted == "cusolver" && device.type != DeviceType::cpu;
}

InvertLower gram_library(Device device) {
  if (!wants_gram_library(device)) return {};
  const DeviceBackend& backend = device_backend(device);
  const DeviceSolver* const solver = backend.solver == nullptr ? nullptr : backend.solver();
  require<UnsupportedError>(solver != nullptr,
                            "NVFP4_FACTORS = cusolver: the device has no such library");
  return [solver, device](double* h, std::int64_t n) { return solver->invert_lower(h, n, device); };
}

}  // namespace nvfp4
