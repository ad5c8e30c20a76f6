#pragma once

#include <filesystem>

#include "checkpoint/plan.h"

namespace nvfp4::checkpoint {

/// Throws what a run that writes one file would throw before it starts; changes nothing. Options:
///   resume     UnsupportedError: the file is written whole or not at all.
///   overwrite  a file of that name may be there.
/// Throws ValueError for a name without the extension or that of the input itself, IoError.
void check_output_file(const std::filesystem::path& output, std::string_view extension,
                       const TransformOptions& options);

/// The folder of the file, if it is not there.
void make_folder_of(const std::filesystem::path& output);

}  // namespace nvfp4::checkpoint
