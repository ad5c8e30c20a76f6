#pragma once

#include <string>

#include "nvfp4/checkpoint.h"

namespace nvfp4::cli::html {

struct PageInput {
  CompareReport difference;  ///< of a and b
  InspectReport a, b;        ///< that of b with histograms
  std::size_t worst = 50;    ///< tensors to list
};

/// What `nvfp4 compare` found, as one HTML page that loads nothing: no script, no font, no image.
/// The same input gives the same bytes.
std::string page(const PageInput& input);

}  // namespace nvfp4::cli::html
