#pragma once

#include <string>
#include <string_view>

/// Which GPUs run the machine code of a build.
namespace nvfp4::cuda {

/// Whether machine code for one of `targets`, "80,90a,100f", runs on compute capability
/// major.minor: that for 80 on all 8.x from 8.0 on, for 90a on 9.0 alone, for 100f on 10.x (source:
/// CUDA C++ Programming Guide, "Compute Capabilities", binary and family-specific compatibility).
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

/// The oldest driver, by its branch, that takes a runtime of CUDA `major` (source: CUDA Toolkit
/// Release Notes, "CUDA Toolkit and Minimum Required Driver Versions"): with machine code only, any
/// of the same major version does.
constexpr int oldest_driver(int major) { return major >= 13 ? 580 : 525; }

/// Why a driver for CUDA `driver` does not take a runtime of `runtime`; both as 1000 · major + 10 ·
/// minor, driver 0: there is none.
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
