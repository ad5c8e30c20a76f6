#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::checkpoint {

/// Returns the content of a small file. Throws IoError, also for a pipe or a device. Throws
/// FormatError above 256 MB or for a Git LFS pointer.
std::string read_model_text(const std::filesystem::path& path);

/// Returns the FNV-1a hash. It detects changes; it does not resist an adversary.
std::uint64_t fingerprint(std::string_view text, std::uint64_t seed = 0xcbf29ce484222325u);

/// Copies through "<to>.partial" and a rename, so that `to` is whole or absent. Returns the number
/// of bytes. The copy is durable after sync_files() and sync_folder(). Holes stay holes. Throws
/// IoError.
std::uint64_t carry_file(const std::filesystem::path& from, const std::filesystem::path& to);

/// Appends to a file and waits until the text is on the disk. Throws IoError.
void append_to_file(const std::filesystem::path& path, std::string_view text);

/// Makes the content of files below a folder durable. Few files are synced one by one, many by
/// syncing their file systems. Returns the number of waits. Throws IoError.
std::size_t sync_files(const std::filesystem::path& folder,
                       const std::vector<std::filesystem::path>& files);

/// Makes renames and removals in the folder durable. Throws IoError.
void sync_folder(const std::filesystem::path& folder);

/// Returns the folder or file to read. For a Hugging Face cache ("models--org--name", or the folder
/// around a single one) it is a snapshot: the only one, or the one that refs/main names. Any other
/// path is returned unchanged. Throws FormatError if several models are possible.
std::filesystem::path model_path(const std::filesystem::path& input);

/// Throws IoError: the folder holds no .safetensors file. The text names what it holds instead: a
/// pipeline of diffusers, pickles, GGUF files or models in subfolders.
[[noreturn]] void throw_no_weights(const std::filesystem::path& folder);
/// Returns the text that a file is neither .safetensors nor .gguf, with a way to convert a pickle.
std::string no_model_file_text(const std::filesystem::path& file);

/// Reports whether the text is a Git LFS pointer, which replaces a large file until Git fetches it.
bool is_lfs_pointer(std::string_view text);
/// Throws FormatError if the file is a Git LFS pointer. Ignores a file that cannot be read.
void require_no_lfs_pointer(const std::filesystem::path& path);
[[noreturn]] void throw_lfs_pointer(const std::filesystem::path& path);

}  // namespace nvfp4::checkpoint
