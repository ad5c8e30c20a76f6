#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::checkpoint {

/// Returns the whole of a small file. Throws IoError, also for a pipe or a device, and FormatError
/// above 256 MB or for a pointer of Git LFS.
std::string read_model_text(const std::filesystem::path& path);

/// FNV-1a, to see whether something changed; not against an adversary.
std::uint64_t fingerprint(std::string_view text, std::uint64_t seed = 0xcbf29ce484222325u);

/// Copies through "<to>.partial" and a rename, so that `to` is whole or absent, and returns the
/// number of bytes; durable after sync_files() and sync_folder(). Holes stay holes. Throws IoError.
std::uint64_t carry_file(const std::filesystem::path& from, const std::filesystem::path& to);

/// Appends to a file and waits until that is on the disk. Throws IoError.
void append_to_file(const std::filesystem::path& path, std::string_view text);

/// Makes the content of files below a folder durable: few of them one by one, many by syncing their
/// file systems. Returns how often it waited for that. Throws IoError.
std::size_t sync_files(const std::filesystem::path& folder,
                       const std::vector<std::filesystem::path>& files);

/// Makes renames and removals in the folder durable. Throws IoError.
void sync_folder(const std::filesystem::path& folder);

}  // namespace nvfp4::checkpoint
