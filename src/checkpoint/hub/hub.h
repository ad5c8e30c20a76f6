#pragma once

#include <filesystem>
#include <optional>
#include <string>

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

}  // namespace nvfp4::checkpoint
