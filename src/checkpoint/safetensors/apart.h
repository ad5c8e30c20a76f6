#pragma once

#include <filesystem>
#include <string>
#include <vector>

/// The paths that a command reads and writes.
namespace nvfp4 {

/// A path that a command reads or writes, and its name in messages: "input", "--report".
struct UsedPath {
  std::string name;
  std::filesystem::path path;
};

/// Throws OptionsError if an input and an output, or two outputs, are at one place or one inside
/// the other. Places are compared by volume and file number, so different names, links and mounts
/// of one place are found. A folder that is read includes the targets of the links to files in it.
/// A single safetensors file includes the configurations in its folder. A file that is written
/// includes its temporary name. Empty paths are ignored.
void require_apart(std::vector<UsedPath> reads, std::vector<UsedPath> writes);

/// Writes nvfp4.files.json into a folder that the caller has filled. It lists the files of the
/// folder with their hashes. Throws IoError.
void list_files(const std::filesystem::path& folder);

}  // namespace nvfp4
