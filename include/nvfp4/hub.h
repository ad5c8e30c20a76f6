#pragma once

#include <filesystem>
#include <optional>

/// Models by their names on the Hugging Face Hub, in its cache on this machine.
namespace nvfp4 {

/// Returns the folder of a model, or none if the cache does not have all shards of it. A path that
/// exists, or is no name of the hub, is returned unchanged. "org/name" is the snapshot that
/// refs/main names, "org/name@revision" that of a commit, branch or tag. The cache is HF_HUB_CACHE,
/// else hub below HF_HOME, else huggingface/hub below XDG_CACHE_HOME or ~/.cache. Throws IoError,
/// and FormatError for a ref that names no commit.
std::optional<std::filesystem::path> find_cached_model(const std::filesystem::path& name);

/// Returns the same folder. Throws IoError with the command that downloads the model if there is
/// none.
std::filesystem::path find_model(const std::filesystem::path& name);

}  // namespace nvfp4
