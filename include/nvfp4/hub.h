#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "nvfp4/run_options.h"

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

/// Puts the folder of the model in the place of its name, for one run of quantize_checkpoint(). A
/// model in BF16, FP16 or FP32 that the cache does not have is not downloaded before: its small
/// files and the headers of its shards come first, into OUTPUT.download; huggingface_hub fetches a
/// shard when the run asks for it, and while there is room the next, and compares them with the
/// hub's SHA-256. Other models, and those for which there is no Python with huggingface_hub
/// (NVFP4_HUB_PYTHON, or that of the `hf` of PATH), are downloaded whole, as by find_model().
class HubInput {
 public:
  /// `options` must outlive it. `streams` = false: always whole. Throws IoError, UnsupportedError
  /// for an output in a store.
  explicit HubInput(RunOptions& options, bool streams = true);
  HubInput(const HubInput&) = delete;
  HubInput& operator=(const HubInput&) = delete;
  /// Removes OUTPUT.download, unless the output can be resumed: what has arrived of a shard is not
  /// downloaded again then.
  ~HubInput();

 private:
  RunOptions& options_;
  std::filesystem::path staging_;
};

/// Whose token huggingface_hub has. Throws IoError if nothing can be uploaded.
std::string push_account();
/// Uploads a folder as the model `id`, private if the hub does not have it; the commit's address.
/// Throws IoError.
std::string push_model(const std::filesystem::path& folder, const std::string& id);

}  // namespace nvfp4
