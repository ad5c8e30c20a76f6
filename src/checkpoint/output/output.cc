#include "checkpoint/output/output.h"

#include <cerrno>
#include <optional>

#include "checkpoint/formats/format.h"
#include "checkpoint/io/planned_file.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/output/output_folder.h"
#include "checkpoint/output/own_files.h"
#include "checkpoint/plan/plan.h"
#include "checkpoint/safetensors/folder_names.h"
#include "checkpoint/safetensors/header.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

class SafetensorsShard final : public ShardWriter {
 public:
  SafetensorsShard(const PlannedShard& shard, const std::filesystem::path& path)
      : file_(path, safetensors::FilePlan(
                        shard.specs.size(), [&shard](std::size_t i) { return shard.specs[i]; },
                        shard.metadata, name_of_file(path))) {}
  void write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> data) override {
    file_.write(tensor, offset, data);
  }
  std::uint64_t hash() override { return file_.hash(); }
  void commit() override { file_.commit(); }

 private:
  PlannedFile<safetensors::FilePlan> file_;
};

/// Creates the missing folders of a file. The destructor removes those that are empty, so that a
/// failed run leaves none.
class FolderOf {
 public:
  explicit FolderOf(const fs::path& output) {
    fs::path folder = fs::absolute(output).parent_path();
    for (fs::path at = folder; !fs::exists(at); at = at.parent_path()) made_.push_back(at);
    fs::create_directories(folder);
  }
  FolderOf(const FolderOf&) = delete;
  FolderOf& operator=(const FolderOf&) = delete;
  ~FolderOf() {
    std::error_code ignored;
    for (const fs::path& folder : made_) fs::remove(folder, ignored);
  }

 private:
  std::vector<fs::path> made_;  ///< created folders, the innermost first
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
  void open() override {
    check();
    require<IoError>(lacks_room_.empty(), ErrorCode::disk_full,
                     "{}: {}; hint: free space, or write elsewhere", path_.string(), lacks_room_);
    folder_.emplace(path_);
  }
  bool replaces() const override { return true; }
  std::unique_ptr<ShardWriter> open_shard(std::size_t) const override {
    return container_->open(path_);
  }

 private:
  void require_own_partial() const;

  const ModelFolder& model_;
  const Plan& plan_;
  fs::path path_;
  bool resume_, overwrite_;
  std::string lacks_room_;  ///< reason why the file does not fit on the disk, or ""
  std::unique_ptr<const Container> container_;
  std::optional<FolderOf> folder_;
};

OutputFile::OutputFile(const ModelFolder& model, const Plan& plan, const TransformOptions& options)
    : Output(plan.shards.size()),
      model_(model),
      plan_(plan),
      path_(options.output),
      resume_(options.resume),
      overwrite_(options.overwrite) {
  require<UnsupportedError>(options.ranks == 1,
                            "ranks = {}: {} is one file, which one process writes", options.ranks,
                            plan.format->name);
}

void OutputFile::check() {
  require<UnsupportedError>(!resume_,
                            "{}: one file, written whole or not at all; hint: run without --resume",
                            path_.string());
  require<ValueError>(path_.extension() == plan_.format->extension, "output = {}, must end in {}",
                      path_.string(), plan_.format->extension);
  require_no_dangling_link(path_);
  const fs::file_status status = fs::status(path_);
  if (fs::exists(status)) {
    require<IoError>(fs::is_regular_file(status), ErrorCode::not_a_file,
                     "{}: must be a regular file", path_.string());
    require<IoError>(overwrite_, ErrorCode::output_not_empty,
                     "{}: is there already; hint: --overwrite replaces it", path_.string());
    require<IoError>(names_nvfp4(path_), ErrorCode::output_no_model,
                     "{}: its metadata do not name nvfp4, so --overwrite does not replace it; "
                     "hint: remove it yourself",
                     path_.string());
  }
  require_own_partial();
  fs::path folder = fs::absolute(path_).parent_path();
  while (!fs::exists(folder) && folder.has_relative_path()) folder = folder.parent_path();
  require<IoError>(fs::is_directory(folder), ErrorCode::not_a_folder,
                   "{}: is a file, must be a folder", folder.string());
  if (!platform::may_write_in(folder)) throw_io_error(folder, "create a file in", errno);
  container_ = plan_.format->container(model_, plan_);
  warnings_ = container_->warnings();
  // The partial file of a killed run is replaced, so its space counts as free.
  std::error_code none;
  const std::uintmax_t stale = fs::file_size(partial_path(path_), none);
  lacks_room_ = lack_of_room(folder, container_->tensor_bytes(), none ? 0 : stale);
  if (!lacks_room_.empty()) warnings_.push_back(path_.string() + ": " + lacks_room_);
}

/// Throws IoError if a file with the name of the unfinished output is not of a run that was killed.
void OutputFile::require_own_partial() const {
  const fs::path partial = partial_path(path_);
  if (overwrite_ || !fs::exists(fs::symlink_status(partial))) return;
  // A run that was killed before it wrote the header leaves only zeros.
  const bool is_own = fs::is_regular_file(fs::symlink_status(partial)) &&
                      (names_nvfp4(partial) || written_file(partial).hash == hash_text(0));
  require<IoError>(is_own, ErrorCode::output_not_empty,
                   "{}: is there already, and is no unfinished output of nvfp4; hint: rename it; "
                   "--overwrite removes it",
                   partial.string());
}

}  // namespace

std::unique_ptr<ShardWriter> safetensors_shard(const PlannedShard& shard,
                                               const std::filesystem::path& path) {
  return std::make_unique<SafetensorsShard>(shard, path);
}

std::unique_ptr<Output> make_output(const ModelFolder& model, const Plan& plan,
                                    const TransformOptions& options) {
  if (plan.format != nullptr && plan.format->container != nullptr)
    return std::make_unique<OutputFile>(model, plan, options);
  return std::make_unique<OutputFolder>(model, plan, options);
}

void require_no_dangling_link(const fs::path& output) {
  // A path with a slash at its end refers to the target of the link.
  const fs::path link = output.has_filename() ? output : output.parent_path();
  require<IoError>(!fs::is_symlink(fs::symlink_status(link)) || fs::exists(link),
                   "{}: is a link to {}, which is not there", link.string(),
                   fs::is_symlink(fs::symlink_status(link)) ? fs::read_symlink(link).string() : "");
}

}  // namespace nvfp4::checkpoint
