#pragma once

#include "nvfp4/error.h"

namespace nvfp4 {

/// Options that no run can have, whatever the input holds: output and input inside one another,
/// resume and overwrite together, a number out of its range.
struct OptionsError : ValueError {
  using ValueError::ValueError;
  bool of_output = false;  ///< the path of the output is at fault
};

}  // namespace nvfp4
