#pragma once

#include <string>
#include <vector>

#include "backends/backend.h"

namespace nvfp4::cpu {

/// One SIMD target of this build: "cpu" is the best of this machine, the others are forced by name.
struct Target {
  std::string name;
  const Backend* backend;  ///< null if this machine lacks it
  std::string reason, description;
};
const std::vector<Target>& targets();

}  // namespace nvfp4::cpu
