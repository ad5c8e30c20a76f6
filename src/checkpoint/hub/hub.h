#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Names of models on the Hugging Face Hub, and its cache on this machine.
namespace nvfp4::checkpoint {

/// A model of the hub.
struct HubModel {
  std::string id;      ///< "org/name"
  std::string commit;  ///< name of the snapshot
};

/// Returns the model of a path in the cache, models--<org>--<name>/snapshots/<commit>, or nothing
/// for other paths.
std::optional<HubModel> hub_model_of(const std::filesystem::path& path);

/// Returns members of a model card's front matter, the YAML between two lines "---". The members
/// are plain words or lists of words: "license: mit", "language: [en, de]", or a line "- en" for
/// each. Objects, texts over several lines and words longer than 200 bytes are left out. Never
/// throws: text that is not YAML has no members.
std::map<std::string, std::vector<std::string>> front_matter(std::string_view card);

}  // namespace nvfp4::checkpoint

namespace nvfp4 {

/// Returns the folder of a model, or none if the cache does not have all its shards. A path that
/// exists, or that is no name of the hub, is returned unchanged. "org/name" is the snapshot of
/// refs/main; "org/name@revision" that of a commit, branch or tag. The cache is HF_HUB_CACHE, else
/// hub below HF_HOME, else huggingface/hub below XDG_CACHE_HOME or ~/.cache. Throws IoError, and
/// FormatError for a ref that names no commit.
std::optional<std::filesystem::path> find_cached_model(const std::filesystem::path& name);

/// Returns the same folder. If there is none, throws IoError with the command that downloads the
/// model.
std::filesystem::path find_model(const std::filesystem::path& name);

}  // namespace nvfp4
