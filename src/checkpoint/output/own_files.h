#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/safetensors/folder_names.h"

/// Functions that tell the files that nvfp4 wrote from others. --overwrite replaces no others.
/// A file is own if one of these holds:
///   - The folder's list has it, and it is as it was written. A shard is compared by its header and
///     samples of its tensors, another file by its hash.
///   - It belongs to an unfinished run: the journal has it, as it is or without a hash, or the list
///     has it without a hash.
///   - There is no list or journal, and its metadata name nvfp4.
///   - It has the bytes that the new run writes there.
namespace nvfp4::checkpoint {

/// Reports whether the metadata of a GGUF file, a safetensors file or config.json name nvfp4. The
/// file may be unfinished, with a name from partial_path().
bool names_nvfp4(const std::filesystem::path& path);
/// Reports whether a file has the size and the hash, or content, of its entry.
bool is_as_written(const WrittenFile& written, const std::filesystem::path& path);

/// The content of a folder, as paths relative to it.
struct FolderContent {
  std::vector<std::filesystem::path> own;
  /// Files of others. A folder without own files is one entry, for all files in it.
  std::vector<std::filesystem::path> foreign;
  bool by_metadata = false;  ///< true if there is no list, and files are own by their metadata
};

/// A function that returns the entry of a file that the run writes, without a hash for shards.
using Planned = std::function<WrittenFile(const std::string&)>;

/// Returns the content of an output folder that --overwrite replaces by `next`. Throws IoError if
/// all files are foreign. Throws IoError if a foreign file would be replaced, or read by a loader.
FolderContent content_to_replace(const std::filesystem::path& folder, const WrittenFiles& next,
                                 const Planned& planned);

/// Throws IoError if a card of the input, in `next`, would replace one that was edited, or that
/// another program wrote. `lists`: the folder's list and journal.
void require_own_cards(const std::filesystem::path& folder,
                       std::initializer_list<WrittenFiles> lists, const WrittenFiles& next,
                       const std::filesystem::path& model);
/// Returns a warning for each other file of `next` that --resume replaces and somebody edited.
std::vector<std::string> warnings_of_edits(const std::filesystem::path& folder,
                                           std::initializer_list<WrittenFiles> lists,
                                           const WrittenFiles& next, const Planned& planned);

/// Removes files of a folder, and their folders if these are then empty. Throws filesystem_error.
void remove_own_files(const std::filesystem::path& folder,
                      const std::vector<std::filesystem::path>& own);

/// Removes the files of an earlier run, `old`, that the new run does not write, for example since
/// the model has lost them. Returns a warning for each that was changed or has no hash: it stays.
std::vector<std::string> remove_stale(const std::filesystem::path& folder, const WrittenFiles& old,
                                      const WrittenFiles& next);

/// Returns a warning for each foreign file, and one if own files may have been changed.
std::vector<std::string> warnings_of(const std::filesystem::path& folder,
                                     const FolderContent& content);

}  // namespace nvfp4::checkpoint
