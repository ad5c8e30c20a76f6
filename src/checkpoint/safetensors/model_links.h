#pragma once

#include <filesystem>
#include <vector>

namespace nvfp4::checkpoint {

/// Reports whether a canonical path is `outer` or a path in it.
bool is_below(const std::filesystem::path& inner, const std::filesystem::path& outer);

/// The symbolic links of a model folder that are followed. They must lead to the folder or, in a
/// Hugging Face cache (snapshots/<revision>/), to its blobs. A link of a downloaded model could
/// lead anywhere, and the output would contain its target.
class ModelLinks {
 public:
  /// Throws filesystem_error.
  explicit ModelLinks(const std::filesystem::path& root);

  /// Throws IoError if the path is a link whose target is elsewhere or does not exist.
  void require_inside(const std::filesystem::path& path) const;

 private:
  std::vector<std::filesystem::path> roots_;
};

}  // namespace nvfp4::checkpoint
