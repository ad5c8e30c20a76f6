#pragma once

#include <string>

#include "nvfp4/error.h"

namespace nvfp4 {

/// An error in the options that does not depend on the content of the input. Examples are output
/// and input inside one another, resume together with overwrite, and a number out of range.
struct OptionsError : ValueError {
  using ValueError::ValueError;
  std::string option = {};  ///< keyword of the option at fault, such as "output"; "": several
};

}  // namespace nvfp4
