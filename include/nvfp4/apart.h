#pragma once

#include <filesystem>
#include <string>
#include <vector>

/// What a command reads and what it writes.
namespace nvfp4 {

/// A path that a command reads or writes, and what messages call it: "input", "--report".
struct UsedPath {
  std::string name;
  std::filesystem::path path;
};

/// Throws OptionsError if something that is read lies where something is written or removed, if
/// something is written into a folder that is read, or if two things are written at one place.
/// Places are compared by volume and file number, so names, links and mounts hide nothing. A model
/// that is read stands for its folder, for the files that links in it lead to, and for the
/// configurations beside a single file; a file that is written, also for its
/// temporary name. An
/// empty path stands for nothing.
void require_apart(std::vector<UsedPath> reads, std::vector<UsedPath> writes);

/// Writes nvfp4.files.json into a folder that the caller has filled: the list of its files, with
/// their hashes. Throws IoError.
void list_files(const std::filesystem::path& folder);

}  // namespace nvfp4
