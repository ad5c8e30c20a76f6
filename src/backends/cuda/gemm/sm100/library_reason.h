#pragma once

#include <string>

namespace nvfp4::cuda::sm100 {

/// Returns the function that says why cuBLASLt cannot be used on this machine, or returns an empty
/// string. Tests replace it.
std::string (*&library_reason())();

}  // namespace nvfp4::cuda::sm100
