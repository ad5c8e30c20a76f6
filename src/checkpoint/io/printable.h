#pragma once

#include <string_view>

#include "nvfp4/printable.h"

namespace nvfp4 {

bool is_utf8(std::string_view text);

}  // namespace nvfp4
