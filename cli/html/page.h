#pragma once

#include <filesystem>
#include <functional>
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

/// The page about checkpoints a and b, whose difference has been measured, with `worst` tensors or
/// more. Reads b once more, for its codes and scales. Throws IoError, FormatError.
std::string page_of(CompareReport difference, const std::filesystem::path& a,
                    const std::filesystem::path& b, std::size_t worst = 0,
                    const std::function<void(const Progress&)>& progress = {});

}  // namespace nvfp4::cli::html
