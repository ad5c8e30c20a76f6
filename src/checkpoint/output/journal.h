#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/plan/plan.h"
#include "checkpoint/safetensors/written_files.h"
#include "core/json.h"

/// nvfp4.partial.json: what an unfinished output folder is going to be, and which of its shards are
/// finished. While it is there the folder is incomplete; it is written before anything else and
/// removed last. Its first line has the options and the input, each further line a finished shard:
/// a line is appended for a shard, so that the time does not grow with the square of the shards.
namespace nvfp4::checkpoint {

class Journal {
 public:
  /// For a new run. `files`: what the folder will hold, which --overwrite may remove.
  Journal(const ModelFolder& model, const TransformOptions& options, const Plan& plan,
          const WrittenFiles& files);

  /// Takes over what an earlier run, or another rank of this one, has done. Throws ValueError that
  /// names the first option or input file that differs, FormatError for a journal that cannot be
  /// read.
  void resume(const std::string& text, const std::string& file);

  std::string text() const;
  /// Writes it to the folder, atomically.
  void save(const std::filesystem::path& folder) const;
  /// Removes it: the folder is complete.
  static void finish(const std::filesystem::path& folder);
  /// Written before the files of an old output are removed: a resumed run goes on with that and
  /// then starts.
  static void save_clearing(const std::filesystem::path& folder,
                            const std::vector<std::filesystem::path>& own);
  /// Throws FormatError for a journal that cannot be read.
  static bool is_clearing(const std::string& text, const std::string& file);

  /// Records a shard that is whole but has not got its name yet: how to know it again, and its
  /// errors, tensor by tensor, so that the report of a resumed run is whole. Throws IoError.
  void record(const PlannedShard& shard, const std::filesystem::path& path, const std::string& hash,
              const std::vector<Outcome>& all);
  /// Appends the shard's record to `file`, which save() or text() made, and waits for the disk.
  /// Throws IoError.
  void append(const PlannedShard& shard, const std::filesystem::path& file) const;
  /// Whether the shard was recorded, its file unseen.
  bool names(const PlannedShard& shard) const;
  /// Whether `path` is the file that was recorded, and no other run's of the same header; `whole`:
  /// and has the hash that was recorded. Throws IoError.
  bool is_recorded(const PlannedShard& shard, const std::filesystem::path& path, bool whole) const;
  /// Returns the hash that was recorded of a shard; "" if there is none.
  std::string hash_of(const PlannedShard& shard) const;
  /// False if its errors were not recorded.
  bool recall(const PlannedShard& shard, std::vector<Outcome>& all) const;

 private:
  /// How a shard is known again, and its errors as JSON: as values they would take ten times that.
  struct Record {
    Json identity;
    std::string errors;
  };
  static std::string line_of(const std::string& shard, const Record& record);
  /// Piece by piece: there may be a hundred bytes for each tensor.
  void write(const std::function<void(std::string_view)>& put) const;

  Json json_;  ///< the first line
  std::map<std::string, Record> records_;
};

}  // namespace nvfp4::checkpoint
