#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/safetensors/written_files.h"

/// Functions that separate the files that nvfp4 wrote from others. --overwrite removes no others.
namespace nvfp4::checkpoint {

/// Names of the model card, in order of preference. The second is used if somebody else's card has
/// the first.
inline constexpr const char* kCardNames[] = {"README.md", "README-NVFP4.md"};
/// The line that marks a card of nvfp4. A card without it is never replaced.
inline constexpr const char* kCardMark =
    "<!-- nvfp4 quantize wrote this card; without this line "
    "it is yours and stays as it is -->";
/// Reports whether the file exists and contains kCardMark. Users remove that line to keep a card.
bool is_own_card(const std::filesystem::path& path);

/// The content of a folder, as paths relative to it.
struct FolderContent {
  std::vector<std::filesystem::path> own;
  /// Files of others. A folder without own files is one entry, for all files in it.
  std::vector<std::filesystem::path> foreign;
};

/// Returns the content of an output folder that --overwrite replaces by `next`. Own files are those
/// in the folder's list or journal, if they have the size that was written. Without list and
/// journal, own files are those whose metadata have kProducerKey, and the files of `next` that
/// accompany them. Throws IoError if all files are foreign. Throws IoError if a foreign file would
/// be replaced, or read by a loader.
FolderContent content_to_replace(const std::filesystem::path& folder, const WrittenFiles& next);

/// Removes files of a folder, and their folders if these are then empty. Throws filesystem_error.
void remove_own_files(const std::filesystem::path& folder,
                      const std::vector<std::filesystem::path>& own);

/// Returns a warning for each foreign file.
std::vector<std::string> warnings_of_foreign(const std::filesystem::path& folder,
                                             const FolderContent& content);

}  // namespace nvfp4::checkpoint
