#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

/// Names of models on the Hugging Face Hub, and its cache on this machine.
namespace nvfp4::checkpoint {

/// A model of the hub.
struct HubModel {
  std::string id;        ///< "org/name"
  std::string revision;  ///< name of the snapshot: a commit
};

/// Which model a path in the cache belongs to, models--<org>--<name>/snapshots/<revision>; none for
/// other paths.
std::optional<HubModel> hub_model_of(const std::filesystem::path& path);

}  // namespace nvfp4::checkpoint
