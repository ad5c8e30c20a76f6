#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"

/// nvfp4.files.json: the files that this program wrote into a folder, with their sizes and hashes.
namespace nvfp4::checkpoint {

/// A file as it was written. What is not known, or may change later, is absent.
struct WrittenFile {
  std::optional<std::uint64_t> bytes;
  std::string hash;  ///< FileHash as 16 hexadecimal digits; "": absent
};

/// Files by their paths in the folder, with "/" between the parts.
using WrittenFiles = std::map<std::string, WrittenFile>;

/// Returns the list of a folder, or none if it has no list. Throws IoError, FormatError.
std::optional<WrittenFiles> read_written_files(const std::filesystem::path& folder);
/// Parses what json_of() returns. Throws FormatError, which names `file`, also for a path that
/// leaves the folder.
WrittenFiles written_files_of(const Json& json, const std::string& file);
Json json_of(const WrittenFiles& files);
/// Writes the list, atomically. Throws IoError.
void save_written_files(const std::filesystem::path& folder, const WrittenFiles& files);

/// Returns size and hash of a file as it is now. Throws IoError.
WrittenFile written_file(const std::filesystem::path& path);
/// Returns those of a file with that content.
WrittenFile written_text(std::string_view text);
std::string hash_text(std::uint64_t hash);
/// Returns what differs between a file and its entry: "is missing", ...; "" if nothing does, or if
/// the entry says nothing. Reads the whole file. Throws IoError.
std::string difference_from(const WrittenFile& written, const std::filesystem::path& path);

}  // namespace nvfp4::checkpoint
