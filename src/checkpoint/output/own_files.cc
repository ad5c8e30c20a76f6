#include "checkpoint/output/own_files.h"

#include <algorithm>
#include <set>

#include "checkpoint/io/json_text.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/output/ranks.h"
#include "checkpoint/safetensors/folder_names.h"
#include "checkpoint/source/content.h"
#include "core/require.h"
#include "nvfp4/checkpoint/safetensors.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

bool is_ours_by_name(const std::string& name) {
  return name == kJournalName || name == kFilesName || RankFiles::is_one(name);
}

/// Reports whether loaders read a file of that name: weights, index, configurations, adapters.
bool is_read_by_loaders(const std::string& name) {
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  return ends(".safetensors") || ends(".gguf") || ends(".bin") || ends(".pt") || ends(".pth") ||
         ends(".index.json") || ends("config.json") || name == "params.json" ||
         name.starts_with("adapter_");
}

/// Returns the files in the journal of a run that clears or fills the folder. Null without one.
std::optional<WrittenFiles> files_of_journal(const fs::path& folder) {
  const fs::path path = folder / kJournalName;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return {};
  const auto json = parse_json_or_null(read_model_text(path));
  if (!json.is_object() || !json.contains("files")) return {};
  return written_files_of(json["files"], path.string());
}

bool names_producer(const fs::path& path) {
  try {
    if (path.extension() == ".safetensors")
      return safetensors::File::open(path).metadata().contains(kProducerKey);
    const auto json = parse_json_or_null(read_model_text(path));
    return json.is_object() && json.contains(kProducerKey);
  } catch (const Error&) {
    return false;
  }
}

/// Returns the own files of a folder without a list: files that name nvfp4 as their producer, and
/// the files that accompany them.
WrittenFiles files_by_metadata(const fs::path& folder, const WrittenFiles& next) {
  WrittenFiles files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_symlink() || !entry.is_regular_file()) continue;
    if ((name == "config.json" || name.ends_with(".safetensors")) && names_producer(entry.path()))
      files[name];
  }
  if (files.empty()) return files;
  files["hf_quant_config.json"];
  files["model.safetensors.index.json"];
  for (const auto& [path, written] : next)
    if (!path.ends_with(".safetensors") && path != "config.json") files[path];
  return files;
}

/// Reports whether a file is the one that was written: a shard by its header and samples of its
/// tensors, others by their hash.
bool is_as_written(const WrittenFile& written, const fs::path& path) {
  if (written.content.empty()) return difference_from(written, path).empty();
  try {
    const TensorFile file = TensorFile::open(path);
    return written.bytes == file.file_bytes() && hex(content_of(file)) == written.content;
  } catch (const Error&) {
    return false;
  }
}

class Sorter {
 public:
  Sorter(const fs::path& folder, const WrittenFiles& next) : folder_(folder), next_(next) {
    const auto listed = read_list();
    const auto in_journal = files_of_journal(folder);
    if (listed) ours_ = *listed;
    if (in_journal)
      for (const auto& [path, written] : *in_journal) ours_[path] = {};
    if (!listed && !in_journal) ours_ = files_by_metadata(folder, next);
    for (const auto& [path, written] : ours_) names_.insert(path);
    names_.insert({kJournalName, kFilesName});
  }

  FolderContent run() {
    sort({});
    return std::move(content_);
  }

 private:
  std::optional<WrittenFiles> read_list() const {
    try {
      return read_written_files(folder_);
    } catch (const FormatError&) {
      return {};  // the list is malformed
    }
  }

  bool is_own(const fs::directory_entry& entry, const std::string& path) const {
    if (entry.is_symlink() || !entry.is_regular_file()) return false;
    const auto partial = names_when_whole(path);
    if (std::ranges::any_of(partial, [&](const auto& name) { return names_.contains(name); }))
      return true;
    if (std::ranges::find(kCardNames, path) != std::end(kCardNames))
      return is_own_card(entry.path());
    if (path.find('/') == std::string::npos && is_ours_by_name(path)) return true;
    const auto found = ours_.find(path);
    return found != ours_.end() && is_as_written(found->second, entry.path());
  }

  bool holds_ours(const std::string& path) const {
    const auto at = names_.lower_bound(path + '/');
    return at != names_.end() && at->starts_with(path + '/');
  }

  void sort(const fs::path& below) {
    std::vector<fs::directory_entry> entries;
    for (const auto& entry : fs::directory_iterator(folder_ / below)) entries.push_back(entry);
    std::ranges::sort(entries, {}, [](const auto& e) -> const auto& { return e.path().native(); });
    for (const fs::directory_entry& entry : entries) {
      const fs::path path = below / entry.path().filename();
      const std::string name = path.generic_string();
      if (entry.is_directory() && !entry.is_symlink() && holds_ours(name)) {
        sort(path);
      } else if (is_own(entry, name)) {
        content_.own.push_back(path);
      } else {
        require_may_stay(entry, name);
        content_.foreign.push_back(path);
      }
    }
  }

  void require_may_stay(const fs::directory_entry& entry, const std::string& name) const {
    const std::string file = (folder_ / name).string();
    const bool top = name.find('/') == std::string::npos;
    require<IoError>(!top || !is_read_by_loaders(name) || entry.is_directory(),
                     ErrorCode::output_no_model,
                     "{}: nvfp4 did not write it as it is, so --overwrite does not remove it; a "
                     "loader would read it beside the output; hint: remove it yourself",
                     file);
    const bool blocks = !entry.is_directory() && std::ranges::any_of(next_, [&](const auto& file) {
      return file.first.starts_with(name + '/');
    });
    require<IoError>(!next_.contains(name) && !blocks, ErrorCode::output_no_model,
                     "{}: nvfp4 did not write it as it is, so --overwrite does not replace it by "
                     "the output's; hint: remove it yourself",
                     file);
  }

  const fs::path& folder_;
  const WrittenFiles& next_;
  WrittenFiles ours_;
  std::set<std::string> names_;
  FolderContent content_;
};

}  // namespace

bool is_own_card(const fs::path& path) {
  constexpr std::uintmax_t kLargest = 1 << 24;
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(path, error)) ||
      fs::file_size(path, error) > kLargest || error)
    return false;
  return read_model_text(path).find(kCardMark) != std::string::npos;
}

FolderContent content_to_replace(const fs::path& folder, const WrittenFiles& next) {
  FolderContent content = Sorter(folder, next).run();
  require<IoError>(!content.own.empty() || content.foreign.empty(), ErrorCode::output_no_model,
                   "{}: does not look like a model folder of nvfp4: it holds {}, and nothing that "
                   "nvfp4 wrote; hint: remove it yourself",
                   folder.string(),
                   content.foreign.empty() ? "" : content.foreign.front().string());
  return content;
}

void remove_own_files(const fs::path& folder, const std::vector<fs::path>& own) {
  std::set<fs::path, std::greater<>> parents;  // the innermost first
  for (const fs::path& path : own) {
    fs::remove(folder / path);
    for (fs::path at = path.parent_path(); !at.empty(); at = at.parent_path()) parents.insert(at);
  }
  std::error_code not_empty;
  for (const fs::path& parent : parents) fs::remove(folder / parent, not_empty);
}

std::vector<std::string> warnings_of_foreign(const fs::path& folder, const FolderContent& content) {
  std::vector<std::string> warnings;
  for (const fs::path& path : content.foreign)
    warnings.push_back(fmt::format("{}: is not of the earlier output and is not removed",
                                   (folder / path).string()));
  return warnings;
}

}  // namespace nvfp4::checkpoint
