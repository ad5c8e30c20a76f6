#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/output/output.h"

namespace nvfp4::checkpoint {

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

/// A file of another kind than safetensors, written whole or not at all. Options:
///   resume     UnsupportedError
///   overwrite  a file of that name may be there.
///   ranks      UnsupportedError for more than one
/// ValueError for a name without the format's extension.
class OutputFile final : public Output {
 public:
  OutputFile(const ModelFolder& model, const Plan& plan, const TransformOptions& options);

  void check() override;
  void open() override;
  bool replaces() const override { return true; }
  std::unique_ptr<ShardWriter> open_shard(std::size_t shard) const override;

 private:
  const ModelFolder& model_;
  const Plan& plan_;
  std::filesystem::path path_;
  bool resume_, overwrite_;
  std::string lacks_room_;  ///< in the file system; "" if it does not
  std::unique_ptr<const Container> container_;
  std::optional<FolderOf> folder_;
};

}  // namespace nvfp4::checkpoint
