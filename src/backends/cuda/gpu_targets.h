#pragma once

#include <string>
#include <string_view>

/// Tells which GPUs can run the machine code of a build.
namespace nvfp4::cuda {

/// Reports whether machine code for one of `targets`, such as "80,90a,100f", runs on compute
/// capability major.minor. Code for 80 runs on all 8.x, 90a on 9.0 only, 100f on 10.x. Source: CUDA
/// C++ Programming Guide, "Compute Capabilities", binary and family-specific compatibility.
constexpr bool has_machine_code(std::string_view targets, int major, int minor) {
  while (!targets.empty()) {
    const std::size_t comma = targets.find(',');
    const std::string_view target = targets.substr(0, comma);
    targets.remove_prefix(comma == std::string_view::npos ? targets.size() : comma + 1);
    int number = 0;
    for (const char c : target)
      if (c >= '0' && c <= '9') number = 10 * number + (c - '0');
    const bool exact = target.ends_with('a');
    if (number / 10 == major && (exact ? number % 10 == minor : number % 10 <= minor)) return true;
  }
  return false;
}

/// Returns the oldest driver branch that supports a runtime of CUDA `major`. With machine code
/// only, every driver of the same major version does. Source: CUDA Toolkit Release Notes, "CUDA
/// Toolkit and Minimum Required Driver Versions".
constexpr int oldest_driver(int major) { return major >= 13 ? 580 : 525; }

/// Returns why a driver for CUDA `driver` does not support the CUDA runtime `runtime`. Versions are
/// 1000 · major + 10 · minor; driver 0: none is loaded.
inline std::string driver_fault(int runtime, int driver) {
  const auto name = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  return (driver == 0 ? std::string("no CUDA driver is loaded")
                      : "the driver is for CUDA " + name(driver)) +
         ", this build of CUDA " + name(runtime) + " takes driver " +
         std::to_string(oldest_driver(runtime / 1000)) + " or newer";
}

}  // namespace nvfp4::cuda
