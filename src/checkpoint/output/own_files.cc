#include "checkpoint/output/own_files.h"

#include <algorithm>
#include <set>

#include "checkpoint/gguf/header.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/output/output_folder.h"
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

/// Reports whether a file has the hash of its entry. Without a hash it has not.
bool is_certain(const WrittenFile& written, const fs::path& path) {
  return !written.hash.empty() && is_as_written(written, path);
}

/// Reports whether a file has the hash of its entry in one of the lists.
bool is_listed(std::initializer_list<WrittenFiles> lists, const std::string& name,
               const fs::path& path) {
  return std::ranges::any_of(lists, [&](const WrittenFiles& list) {
    const auto listed = list.find(name);
    return listed != list.end() && is_certain(listed->second, path);
  });
}

class Sorter {
 public:
  Sorter(const fs::path& folder, const WrittenFiles& next, const Planned& planned)
      : folder_(folder), next_(next), planned_(planned) {
    const auto listed = read_list();
    const auto in_journal = files_of_journal(folder);
    is_listed_ = listed || in_journal;
    if (listed) listed_ = *listed;
    if (in_journal) in_journal_ = *in_journal;
    for (const WrittenFiles* files :
         std::initializer_list<const WrittenFiles*>{&listed_, &in_journal_, &next})
      for (const auto& [path, written] : *files) names_.insert(path);
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

  bool is_own(const fs::directory_entry& entry, const std::string& path) {
    if (entry.is_symlink() || !entry.is_regular_file()) return false;
    const auto partial = names_when_whole(path);
    if (std::ranges::any_of(partial, [&](const auto& name) { return names_.contains(name); }))
      return true;
    const bool top = path.find('/') == std::string::npos;
    if (top && is_ours_by_name(path)) return true;
    for (const WrittenFiles* files : {&listed_, &in_journal_})
      if (const auto found = files->find(path);
          found != files->end() && is_as_written(found->second, entry.path()))
        return true;
    const bool has_metadata = path == "config.json" || path.ends_with(".safetensors");
    if (!is_listed_ && top && has_metadata && names_nvfp4(entry.path()))
      return content_.by_metadata = true;
    if (!next_.contains(path)) return false;
    const WrittenFile planned = planned_(path);
    return !planned.hash.empty() && is_as_written(planned, entry.path());
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
  const Planned& planned_;
  WrittenFiles listed_, in_journal_;
  bool is_listed_;               ///< true if there is a list or a journal
  std::set<std::string> names_;  ///< files of the earlier run and of the next
  FolderContent content_;
};

}  // namespace

bool names_nvfp4(const fs::path& path) {
  try {
    const fs::path extension = (path.extension() == ".partial" ? path.stem() : path).extension();
    if (extension == ".safetensors")
      return safetensors::File::open(path).metadata().contains(kProducerKey);
    if (extension == ".gguf")
      return std::ranges::any_of(gguf::File::open(path).header().entries,
                                 [](const auto& entry) { return entry.key.starts_with("nvfp4."); });
    const auto json = parse_json_or_null(read_model_text(path));
    return json.is_object() && json.contains(kProducerKey);
  } catch (const Error&) {
    return false;
  }
}

bool is_as_written(const WrittenFile& written, const fs::path& path) {
  if (written.content.empty()) return difference_from(written, path).empty();
  try {
    const TensorFile file = TensorFile::open(path);
    return written.bytes == file.file_bytes() && hex(content_of(file)) == written.content;
  } catch (const Error&) {
    return false;
  }
}

FolderContent content_to_replace(const fs::path& folder, const WrittenFiles& next,
                                 const Planned& planned) {
  FolderContent content = Sorter(folder, next, planned).run();
  require<IoError>(!content.own.empty() || content.foreign.empty(), ErrorCode::output_no_model,
                   "{}: does not look like a model folder of nvfp4: it holds {}, and nothing that "
                   "nvfp4 wrote; hint: remove it yourself",
                   folder.string(),
                   content.foreign.empty() ? "" : content.foreign.front().string());
  return content;
}

void require_own_cards(const fs::path& folder, std::initializer_list<WrittenFiles> lists,
                       const WrittenFiles& next, const fs::path& model) {
  for (const char* name : kCardNames) {
    const fs::path path = folder / name;
    if (!next.contains(name) || !fs::exists(fs::symlink_status(path))) continue;
    require<IoError>(
        is_listed(lists, name, path) || is_as_written(written_file(model / name), path),
        ErrorCode::output_no_model,
        "{}: nvfp4 did not write it as it is, so --resume does not replace it by the "
        "input's; hint: remove it yourself",
        path.string());
  }
}

std::vector<std::string> warnings_of_edits(const fs::path& folder,
                                           std::initializer_list<WrittenFiles> lists,
                                           const WrittenFiles& next, const Planned& planned) {
  std::vector<std::string> warnings;
  for (const auto& [name, written] : next) {
    const fs::path path = folder / name;
    if (is_card_name(name) || !fs::exists(path)) continue;
    const WrittenFile now = planned(name);
    if (now.hash.empty() || is_as_written(now, path) || is_listed(lists, name, path)) continue;
    warnings.push_back(
        fmt::format("{}: is not as nvfp4 wrote it; it is written again", path.string()));
  }
  return warnings;
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

std::vector<std::string> remove_stale(const fs::path& folder, const WrittenFiles& old,
                                      const WrittenFiles& next) {
  std::vector<std::string> warnings;
  const fs::path whole = fs::canonical(folder);
  for (const auto& [name, written] : old) {
    const fs::path path = folder / name;
    if (next.contains(name) || is_card_name(name) || !fs::exists(path)) continue;
    // A link does not lead out of the folder.
    if (fs::is_regular_file(fs::symlink_status(path)) && is_below(fs::canonical(path), whole) &&
        is_certain(written, path))
      remove_own_files(folder, {name});
    else
      warnings.push_back(path.string() +
                         ": is no part of the output any more, and is not as nvfp4 "
                         "wrote it, so it is not removed");
  }
  return warnings;
}

std::vector<std::string> warnings_of(const fs::path& folder, const FolderContent& content) {
  std::vector<std::string> warnings;
  for (const fs::path& path : content.foreign)
    warnings.push_back(fmt::format("{}: nvfp4 did not write it as it is, so it is not removed",
                                   (folder / path).string()));
  if (content.by_metadata)
    warnings.push_back(
        fmt::format("{}: has no {}, so changes of its shards and config.json since "
                    "nvfp4 wrote them are not noticed; they are replaced",
                    folder.string(), kFilesName));
  return warnings;
}

}  // namespace nvfp4::checkpoint
