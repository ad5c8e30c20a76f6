#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/base/json.h"

/// The names of files in a model's folder, and the list of those that nvfp4 wrote.
namespace nvfp4::checkpoint {

/// The journal of a run. It exists while the folder is incomplete.
inline constexpr const char* kJournalName = "nvfp4.partial.json";
/// The prefix of the files that ranks keep in the folder.
inline constexpr const char* kRankPrefix = "nvfp4.rank-";
/// The list of what this program wrote into a folder. It is not part of the model.
inline constexpr const char* kFilesName = "nvfp4.files.json";
/// The key, in config.json and in the metadata of each shard, of the producer: version, options and
/// input that made the scales. It is not ModelOpt's "producer", a name by which loaders decide.
inline constexpr const char* kProducerKey = "nvfp4_cpp";

/// Names of the model card, in order of preference. The second is used if somebody else's card has
/// the first.
inline constexpr const char* kCardNames[] = {"README.md", "README-NVFP4.md"};
/// Reports whether this is the name of a model card, which people edit.
bool is_card_name(std::string_view name);

/// Reports whether this is the name of an index ("model.safetensors.index.json").
bool is_index_name(const std::string& name);

/// Returns the number of shards in a name: 3 for "model-00002-of-00003.safetensors", 0 for others.
int shard_count_of(const std::string& name);

/// The file of a model with one file.
inline constexpr const char* kSingleName = "model.safetensors";
/// Reports whether the .safetensors files of a folder include kSingleName.
bool is_whole_by_itself(const std::vector<std::string>& found);

/// Returns an error text if a folder without an index does not have the number of shards in its
/// file names ("-of-00003"), otherwise nothing. `found` is the sorted list of its .safetensors
/// files.
std::string lost_shards(const std::filesystem::path& folder, const std::vector<std::string>& found);

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

/// Size and hash of a file as it was written. A value that is unknown or may change is absent.
struct WrittenFile {
  std::optional<std::uint64_t> bytes;
  std::string hash;     ///< FileHash as 16 hexadecimal digits; "": absent
  std::string content;  ///< content_of() a shard, the same way: quicker than a hash; "": absent
};

/// Files by their paths in the folder, with "/" between the parts.
using WrittenFiles = std::map<std::string, WrittenFile>;

/// Returns the list of a folder, or none if it has no list. Throws IoError, FormatError.
std::optional<WrittenFiles> read_written_files(const std::filesystem::path& folder);
/// Parses the result of json_of(). Throws FormatError, which names `file`, also for a path that
/// leaves the folder.
WrittenFiles written_files_of(const Json& json, const std::string& file);
/// Returns the members of an entry; those of another type are absent.
WrittenFile written_file_of(const Json& entry);
Json json_of(const WrittenFiles& files);
/// Writes the list, atomically. Throws IoError.
void save_written_files(const std::filesystem::path& folder, const WrittenFiles& files);

/// Returns the present size and hash of a file. Throws IoError.
WrittenFile written_file(const std::filesystem::path& path);
/// Returns the size and hash of a file with that content.
WrittenFile written_text(std::string_view text);
std::string hash_text(std::uint64_t hash);
/// Describes a difference between a file and its entry: "is missing", ... Returns "" if there is
/// none, or if the entry has neither size nor hash. Reads the whole file. Throws IoError.
std::string difference_from(const WrittenFile& written, const std::filesystem::path& path);

}  // namespace nvfp4::checkpoint
