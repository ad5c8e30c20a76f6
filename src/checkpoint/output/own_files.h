#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/safetensors/written_files.h"

/// Which files of a folder this program wrote: --overwrite removes no other.
namespace nvfp4::checkpoint {

/// Names of the model card, in the order in which they are taken: the second where there is a card
/// of somebody else.
inline constexpr const char* kCardNames[] = {"README.md", "README-NVFP4.md"};
/// A line of our own cards. A file without it is never replaced.
inline constexpr const char* kCardMark =
    "<!-- nvfp4 quantize wrote this card; without this line "
    "it is yours and stays as it is -->";
/// Reports whether the file is a card that we wrote and nobody claimed. False if it is not there.
bool is_own_card(const std::filesystem::path& path);

/// The content of a folder, as paths in it.
struct FolderContent {
  std::vector<std::filesystem::path> own;
  /// A folder that holds nothing of ours stands for all in it.
  std::vector<std::filesystem::path> foreign;
};

/// Returns the content of an output folder that --overwrite replaces by `next`. Ours are the files
/// that the folder's list or journal names, with the size that was written; where there is neither,
/// those whose metadata have kProducerKey, and what `next` replaces beside them. Throws IoError if
/// nothing is ours, or if a foreign file would be replaced or read by a loader.
FolderContent content_to_replace(const std::filesystem::path& folder, const WrittenFiles& next);

/// Removes files of a folder, and the folders in it that are empty then. Throws filesystem_error.
void remove_own_files(const std::filesystem::path& folder,
                      const std::vector<std::filesystem::path>& own);

/// Returns a warning for each foreign file.
std::vector<std::string> warnings_of_foreign(const std::filesystem::path& folder,
                                             const FolderContent& content);

}  // namespace nvfp4::checkpoint
