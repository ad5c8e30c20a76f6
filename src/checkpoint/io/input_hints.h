#pragma once

#include <filesystem>
#include <string>
#include <string_view>

/// Inputs that are almost right: finds the model that they stand for, or explains how to make one.
namespace nvfp4::checkpoint {

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
