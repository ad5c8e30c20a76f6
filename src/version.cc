#include "nvfp4/runtime.h"

namespace nvfp4 {
const char* version() { return NVFP4_VERSION; }
}  // namespace nvfp4
