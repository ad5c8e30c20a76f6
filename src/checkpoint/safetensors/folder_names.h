#pragma once

#include <filesystem>
#include <string>
#include <vector>

/// Names of the files in a model's folder.
namespace nvfp4::checkpoint {

/// In a folder while it is incomplete.
inline constexpr const char* kJournalName = "nvfp4.partial.json";
/// Of the files that ranks keep in it.
inline constexpr const char* kRankPrefix = "nvfp4.rank-";
/// What earlier versions left in a complete folder. No part of the model.
inline constexpr const char* kFinishedName = ".nvfp4.finished.json";

/// Whether it is that of an index ("model.safetensors.index.json").
bool is_index_name(const std::string& name);

/// How many shards a name says there are: 3 for "model-00002-of-00003.safetensors", 0 for others.
int shard_count_of(const std::string& name);

/// The one file of a model that has one.
inline constexpr const char* kSingleName = "model.safetensors";
/// Whether it is among the .safetensors files of a folder.
bool is_whole_by_itself(const std::vector<std::string>& found);

/// What is wrong with a folder without an index whose files' names count others ("-of-00003");
/// empty if nothing is. `found` are its .safetensors files, sorted.
std::string lost_shards(const std::filesystem::path& folder, const std::vector<std::string>& found);

}  // namespace nvfp4::checkpoint
