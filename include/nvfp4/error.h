#pragma once

#include <stdexcept>

namespace nvfp4 {

/// Base of all we throw. what() names the argument, its value and the rule:
/// "quantize: x.cols = 100, must be a multiple of 16".
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ShapeError : Error {  ///< sizes, strides or layouts that do not fit
  using Error::Error;
};
struct ValueError : Error {  ///< an argument or a tensor element outside its domain
  using Error::Error;
};
struct UnsupportedError : Error {  ///< a valid request that nothing here can carry out
  using Error::Error;
};
struct DeviceError : Error {  ///< the CUDA runtime or driver refused; names the call
  using Error::Error;
};
struct IoError : Error {  ///< the operating system refused: open, read, write, rename, disk full
  using Error::Error;
};
struct FormatError : Error {  ///< a file whose content breaks its format; names file and tensor
  using Error::Error;
};

}  // namespace nvfp4
