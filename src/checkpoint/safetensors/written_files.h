#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/base/json.h"

/// nvfp4.files.json: the files that nvfp4 wrote into a folder, with their sizes and hashes.
namespace nvfp4::checkpoint {

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
