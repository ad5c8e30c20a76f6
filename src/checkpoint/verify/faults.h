#pragma once

#include <string>
#include <vector>

#include "checkpoint/source/model_folder.h"

namespace nvfp4::checkpoint {

/// What a run makes of a source's values.
struct UseOfValues {
  bool force = false;   ///< they are taken as they are
  bool inputs = false;  ///< input scales are used
  bool caches =
      false;  ///< the output declares a cache of keys and values, whatever the source does
  bool globals = false;  ///< NVFP4 weights come out with the global scales that they have
  bool ignores = false;  ///< weights can be left out by --ignore
};

/// What verify calls broken in a source must not come out as if it were whole: FormatError, unless
/// it is taken by force; then a warning of it is first. Others tell what is odd and may be right.
std::vector<std::string> take_faults(const ModelFolder& model, const UseOfValues& use);

}  // namespace nvfp4::checkpoint
