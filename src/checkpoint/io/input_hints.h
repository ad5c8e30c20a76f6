#pragma once

#include <filesystem>
#include <string>
#include <string_view>

/// Inputs that are almost what is meant: which model they stand for, or what makes one of them.
namespace nvfp4::checkpoint {

/// The folder or file to read. Of the root of a Hugging Face cache ("models--org--name", or the
/// folder around a single one) that is its one snapshot, of several the one that refs/main names;
/// any other path is itself. Throws FormatError where several could be meant.
std::filesystem::path model_path(const std::filesystem::path& input);

/// Throws IoError: the folder holds no .safetensors file. The text names what it holds instead: a
/// pipeline of diffusers, pickles, GGUF files, models in folders below.
[[noreturn]] void throw_no_weights(const std::filesystem::path& folder);
/// That a file is neither .safetensors nor .gguf, and how a pickle becomes one.
std::string no_model_file_text(const std::filesystem::path& file);

/// A text that stands in the place of a large file until Git fetches that.
bool is_lfs_pointer(std::string_view text);
/// Throws FormatError if the file is one. A file that cannot be read is left to others.
void require_no_lfs_pointer(const std::filesystem::path& path);
[[noreturn]] void throw_lfs_pointer(const std::filesystem::path& path);

}  // namespace nvfp4::checkpoint
