#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/output/output.h"
#include "checkpoint/output/own_files.h"
#include "checkpoint/plan/plan.h"
#include "checkpoint/safetensors/folder_names.h"

namespace nvfp4::checkpoint {

/// Returns the rank that writes each shard of the plan. Ranks are balanced by bytes of input.
std::vector<int> rank_of_shards(const Plan& plan, int ranks);

/// A lock on a file. A process holds it until the process ends, even by a signal.
class FileLock {
 public:
  FileLock() = default;
  /// Takes the lock. Returns false if another process has it. Throws IoError, also if the file
  /// system has no locks.
  bool take(const std::filesystem::path& path);

 private:
  Descriptor fd_;
};

/// The names of one rank's files. Ranks are processes that write one folder together and send no
/// messages. Each has a record of its finished shards, and a lock that ends with the process.
class RankFiles {
 public:
  RankFiles(std::filesystem::path folder, int rank, int ranks)
      : folder_(std::move(folder)), rank_(rank), ranks_(ranks) {}

  static bool is_one(const std::string& name) { return name.starts_with(kRankPrefix); }

  /// Returns the file with the finished shards of this rank: for one rank, the journal.
  std::filesystem::path record() const {
    return ranks_ == 1 ? folder_ / kJournalName : record_of(rank_);
  }
  std::filesystem::path lock() const { return lock_of(rank_); }
  std::filesystem::path finish_lock() const {
    return folder_ / fmt::format("{}finish.lock", kRankPrefix);
  }
  /// Returns the existing records of all ranks.
  std::vector<std::filesystem::path> records() const;
  /// Creates `path` with that content unless it exists. The file is created whole or not at all,
  /// even if several processes try at once. Throws IoError.
  void create(const std::filesystem::path& path, const std::string& content) const;
  void remove_records() const;
  void remove_locks() const;

 private:
  std::filesystem::path record_of(int rank) const;
  std::filesystem::path lock_of(int rank) const;
  std::filesystem::path draft_of(int rank) const;

  std::filesystem::path folder_;
  int rank_, ranks_;
};

/// nvfp4.partial.json: the options of an unfinished output folder and its finished shards. The
/// folder is incomplete while this file exists. The file is written before all others and removed
/// last. Its first line has the options and the input. Each further line has a finished shard. A
/// line is appended for each shard, so that the time is not quadratic in the number of shards.
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

/// The folder that a run writes, from the first byte to the last rename. Several ranks may write it
/// together; a run of one process is the rank 0 of 1, whose record is the journal.
class OutputFolder final : public Output {
 public:
  /// Changes no files yet. Throws IoError.
  OutputFolder(const ModelFolder& model, const Plan& plan, const TransformOptions& options);
  /// Removes the journal and the created folders of a run without ranks that has finished no shard
  /// of a new output. Such a run leaves nothing behind.
  ~OutputFolder() override;

  void check() override;
  /// Creates the folder, or prepares the existing one. A folder with files is an error, except for
  ///   resume     with the journal of the same options and input, or their complete output
  ///   overwrite  if nvfp4 wrote files in it, which are then removed. Other files stay, with a
  ///              warning. A file that a loader would read is an error.
  ///   ranks      with the journal of ranks with the same options and input, or their complete
  ///              output
  /// Throws IoError, ValueError, FormatError.
  void open() override;
  bool replaces() const override { return overwrite_; }
  bool complete() const override { return complete_; }
  int reused() const override { return reused_; }
  bool is_of_another_rank(std::size_t shard) const override { return rank_of_[shard] != rank_; }
  std::unique_ptr<ShardWriter> open_shard(std::size_t shard) const override;
  /// Saves the journal with the shard and its errors.
  void before_commit(std::size_t shard, ShardWriter& writer,
                     const std::vector<Outcome>& errors) override;
  /// Reports whether this process must call finish(): the only process, or the last rank. Then the
  /// journal has the shards of all ranks. Throws IoError, ValueError, FormatError.
  bool is_last() override;
  bool recall(std::size_t shard, std::vector<Outcome>& all) const override {
    return journal_.recall(plan_.shards[shard], all);
  }
  /// Copies the other files of the model. Writes the card, hf_quant_config.json, params.json, the
  /// index, the list of files and, last, config.json. Then removes the journal: the output is
  /// complete. An own card is replaced only if `whole`, so that no errors are lost from it. Own
  /// files that are no part of this output are removed.
  void finish(QuantizeReport& report, bool whole) override;

 private:
  enum class Start { fresh, clear, go_on, finish_again, complete };

  void create();
  void lock();
  Start decide();
  Start decide_without_journal(const std::string& entry);
  static void require_same(const std::string& difference, const std::filesystem::path& path);
  void find_finished_shards();
  void take_records();
  std::vector<char> recorded_shards(bool whole) const;
  bool has_changed();
  bool rest_is_complete() const;
  std::string lack_of_room(Start start) const;
  void clear_old_output();
  void remove_leftovers(const std::set<std::string>& shards) const;
  void remove_rank_files() const;
  std::set<std::filesystem::path> folders_of_others() const;
  void require_own_folders() const;
  void warn(std::string text);
  std::string place_of_card(const std::string& card, const WrittenFiles& before, bool whole,
                            QuantizeReport& report);
  void save_list(const WrittenFiles& before);

  const ModelFolder& model_;
  const Plan& plan_;
  const TransformOptions& options_;
  std::filesystem::path path_;
  WrittenFiles files_;
  FolderContent old_;  ///< content that --overwrite replaces
  Journal journal_;
  std::vector<std::filesystem::path> created_;  ///< created folders, the innermost first
  bool resume_, overwrite_;
  int rank_, ranks_;
  std::vector<int> rank_of_;   ///< rank of each shard
  std::set<std::string> own_;  ///< files of this rank's shards
  RankFiles rank_files_;
  std::optional<PartialTag> partial_tag_;
  int reused_ = 0;
  FileLock rank_lock_, finish_lock_;
  bool complete_ = false, started_empty_ = false, any_shard_ = false, finished_ = false;
  Descriptor lock_;
};

/// Returns the card of a quantized model for the Hugging Face Hub: Markdown with YAML front matter.
/// It has the source, the command, the sizes, the errors, the engines and the licence. It is equal
/// for equal models and options, since it has no times and names no device. Empty if nothing is
/// quantized.
std::string model_card(const ModelFolder& model, const Plan& plan, const TransformOptions& options,
                       const QuantizeReport& report);

/// Returns how the shards in `folder` differ from those that the plan would write, or "". It
/// compares names, dtypes, shapes and metadata. The metadata name the options and the input of
/// quantized tensors. It also compares samples of copied tensors, the global scales of weights with
/// copied codes, and the first row of dequantized weights. Throws IoError.
std::string difference_from_plan(const Plan& plan, const std::filesystem::path& folder);

/// Returns the files of an output folder without their sizes. The model card is left out, since its
/// name depends on the folder.
WrittenFiles files_of_output(const ModelFolder& model, const Plan& plan);

/// Returns the text of a file that the run creates, or "" for another file.
std::string text_of_file(const Plan& plan, const std::string& name);
/// Returns the size and hash of a file that the run writes; both are absent for a shard.
WrittenFile planned_file(const ModelFolder& model, const Plan& plan, const std::string& name);

}  // namespace nvfp4::checkpoint
