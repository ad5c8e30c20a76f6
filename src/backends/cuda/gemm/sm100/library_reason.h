#pragma once

#include <string>

namespace nvfp4::cuda::sm100 {

/// Says why cuBLASLt cannot be used on this machine, or nothing. Tests put another one in its
/// place.
std::string (*&library_reason())();

}  // namespace nvfp4::cuda::sm100
