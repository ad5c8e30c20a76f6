#pragma once

#include "nvfp4/error.h"

namespace nvfp4 {

/// An error in the options that does not depend on the content of the input. Examples are output
/// and input inside one another, resume together with overwrite, and a number out of range.
struct OptionsError : ValueError {
  using ValueError::ValueError;
  bool of_output = false;  ///< true if the output path is at fault
};

}  // namespace nvfp4
