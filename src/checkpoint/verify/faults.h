#pragma once

#include <string>
#include <vector>

#include "checkpoint/source/model_folder.h"

namespace nvfp4::checkpoint {

/// The use that a run makes of a source's values.
struct UseOfValues {
  bool force = false;    ///< faulty values are used as they are
  bool inputs = false;   ///< input scales are used
  bool caches = false;   ///< the output declares a quantized cache, whatever the source does
  bool globals = false;  ///< NVFP4 weights keep their global scales
  bool ignores = false;  ///< --ignore can leave weights out
};

/// Checks a source for values that verify calls faulty. Throws FormatError for them unless `force`
/// is set; then the first warning describes them. The other warnings are about odd values that may
/// be right.
std::vector<std::string> take_faults(const ModelFolder& model, const UseOfValues& use);

}  // namespace nvfp4::checkpoint
