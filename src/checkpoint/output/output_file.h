#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/output/output.h"

namespace nvfp4::checkpoint {

/// Creates the missing folders of a file. The destructor removes those that are empty, so that a
/// failed run leaves none.
class FolderOf {
 public:
  explicit FolderOf(const std::filesystem::path& output);
  FolderOf(const FolderOf&) = delete;
  FolderOf& operator=(const FolderOf&) = delete;
  ~FolderOf();

 private:
  std::vector<std::filesystem::path> made_;  ///< created folders, the innermost first
};

/// An output in a single file that is not safetensors. It is written whole or not at all. Options:
///   resume     throws UnsupportedError
///   overwrite  replaces an existing file
///   ranks      throws UnsupportedError for more than one
/// A name without the format's extension throws ValueError.
class OutputFile final : public Output {
 public:
  OutputFile(const ModelFolder& model, const Plan& plan, const TransformOptions& options);

  void check() override;
  void open() override;
  bool replaces() const override { return true; }
  std::unique_ptr<ShardWriter> open_shard(std::size_t shard) const override;

 private:
  void require_own_partial() const;

  const ModelFolder& model_;
  const Plan& plan_;
  std::filesystem::path path_;
  bool resume_, overwrite_;
  std::string lacks_room_;  ///< reason why the file does not fit on the disk, or ""
  std::unique_ptr<const Container> container_;
  std::optional<FolderOf> folder_;
};

}  // namespace nvfp4::checkpoint
