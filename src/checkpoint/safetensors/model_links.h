#pragma once

#include <filesystem>
#include <vector>

namespace nvfp4::checkpoint {

/// Which symbolic links of a model folder are followed: those that lead to a place in the folder
/// or, in a cache of Hugging Face (snapshots/<revision>/), among its blobs. Whatever else a link of
/// a downloaded model leads to, the output would carry on.
class ModelLinks {
 public:
  /// Throws filesystem_error.
  explicit ModelLinks(const std::filesystem::path& root);

  /// Throws IoError that names a link of the folder and its target, if that lies elsewhere or is
  /// not there.
  void require_inside(const std::filesystem::path& path) const;

 private:
  std::vector<std::filesystem::path> roots_;
};

}  // namespace nvfp4::checkpoint
