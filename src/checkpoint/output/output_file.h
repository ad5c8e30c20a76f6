#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Throws what a run that writes one file would throw before it starts; changes nothing. Options:
///   resume     UnsupportedError: the file is written whole or not at all.
///   overwrite  a file of that name may be there.
/// Throws ValueError for a name without the extension or that of the input itself, IoError.
void check_output_file(const std::filesystem::path& output, std::string_view extension,
                       const TransformOptions& options);

/// Makes the folders of a file that are not there. At the end those go again that hold nothing: a
/// run that failed leaves none.
class FolderOf {
 public:
  explicit FolderOf(const std::filesystem::path& output);
  FolderOf(const FolderOf&) = delete;
  FolderOf& operator=(const FolderOf&) = delete;
  ~FolderOf();

 private:
  std::vector<std::filesystem::path> made_;  ///< the innermost first
};

}  // namespace nvfp4::checkpoint
