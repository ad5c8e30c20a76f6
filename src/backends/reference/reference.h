#pragma once

#include "backends/backend.h"

namespace nvfp4::reference {

/// Returns the reference backend: plain loops over quantizers/encode_block.h. It is slow and
/// defines the right answer.
const Backend& backend();

}  // namespace nvfp4::reference
