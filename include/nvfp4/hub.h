#pragma once

#include <filesystem>
#include <string_view>

/// Models by their names on the Hugging Face Hub.
namespace nvfp4 {

/// Whether it is a name as the hub has them, "org/name". A path can look the same.
bool is_hub_name(std::string_view name);

/// Where models of the hub are kept on this machine: HF_HUB_CACHE, else hub below HF_HOME, else
/// huggingface/hub below XDG_CACHE_HOME or ~/.cache.
std::filesystem::path hub_cache();

enum class Download : bool { no, yes };

/// The folder of a model. A path that is there, or is no name of the hub, comes back as it is. For
/// "org/name" it is the snapshot of the cache that refs/main names, if its shards are all there;
/// else, with `Download::yes` and unless HF_HUB_OFFLINE is set, `hf download org/name` is run, if
/// PATH has `hf`. Throws IoError that says how to get the model if it is not there then.
std::filesystem::path find_model(const std::filesystem::path& name, Download download);

}  // namespace nvfp4
