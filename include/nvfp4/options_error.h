#pragma once

#include "nvfp4/error.h"

namespace nvfp4 {

/// Options that no run can have, whatever the input holds: output and input inside one another,
/// resume and overwrite together.
struct OptionsError : ValueError {
  using ValueError::ValueError;
};

}  // namespace nvfp4
