#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/plan/plan.h"
#include "checkpoint/safetensors/written_files.h"

/// nvfp4.partial.json: the options of an unfinished output folder and its finished shards. The
/// folder is incomplete while this file exists. The file is written before all others and removed
/// last. Its first line has the options and the input. Each further line has a finished shard. A
/// line is appended for each shard, so that the time is not quadratic in the number of shards.
namespace nvfp4::checkpoint {

class Journal {
 public:
  /// Creates the journal of a new run. `files` are the files that the folder will hold. --overwrite
  /// may remove them.
  Journal(const ModelFolder& model, const TransformOptions& options, const Plan& plan,
          const WrittenFiles& files);

  /// Adds the records of an earlier run, or of another rank of this run. Throws ValueError, which
  /// names the first option or input file that differs, or FormatError if the text is malformed.
  void resume(const std::string& text, const std::string& file);

  /// Returns the first line of the file: the journal without records.
  std::string text() const;
  /// Writes the journal to `file`, atomically, with the records of these shards.
  void save(const std::filesystem::path& file, const std::set<std::string>& shards) const;
  /// Removes the journal. Then the folder is complete.
  static void finish(const std::filesystem::path& folder);
  /// Writes the journal of a folder whose old files, `own`, are about to be removed. A resumed run
  /// continues to remove them and then starts.
  static void save_clearing(const std::filesystem::path& folder,
                            const std::vector<std::filesystem::path>& own);
  /// Reports whether save_clearing() wrote the journal. Throws FormatError if it is malformed.
  static bool is_clearing(const std::string& text, const std::string& file);

  /// Records a shard that is complete but does not have its final name yet. The record identifies
  /// the file. It also has the errors of each tensor, for the report of a resumed run. Throws
  /// IoError.
  void record(const PlannedShard& shard, const std::filesystem::path& path, const std::string& hash,
              const std::vector<Outcome>& all);
  /// Appends the shard's record to `file`, which save() wrote, and waits for the disk.
  /// Throws IoError.
  void append(const PlannedShard& shard, const std::filesystem::path& file) const;
  /// Adds the sizes and hashes of files that are known before the run.
  void add_files(const WrittenFiles& files) { json_["files"].update(json_of(files)); }
  /// Returns the files that this run and the interrupted one would write. Throws FormatError.
  WrittenFiles files() const;
  /// Reports whether the shard was recorded. It does not read the file.
  bool names(const PlannedShard& shard) const;
  /// Reports whether `path` is the recorded file and not one of another run with the same header.
  /// If `whole`, it also compares the hash of all bytes. Throws IoError.
  bool is_recorded(const PlannedShard& shard, const std::filesystem::path& path, bool whole) const;
  /// Returns the recorded size, hash and content of a shard. Without a record all are absent.
  WrittenFile written(const PlannedShard& shard) const;
  /// Copies the recorded errors of a shard to `all`. Returns false if they were not recorded.
  bool recall(const PlannedShard& shard, std::vector<Outcome>& all) const;

 private:
  /// The identity of a shard's file and the shard's errors, as JSON text. As values the errors
  /// would take ten times the memory.
  struct Record {
    Json identity;
    std::string errors;
  };
  static std::string line_of(const std::string& shard, const Record& record);
  Json json_;  ///< the first line of the file
  std::map<std::string, Record> records_;
};

}  // namespace nvfp4::checkpoint
