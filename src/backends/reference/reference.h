#pragma once

#include "backends/backend.h"

namespace nvfp4::reference {

/// Plain loops over quantizers/encode_block.h: slow, and the definition of the right answer.
const Backend& backend();

}  // namespace nvfp4::reference
