#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/io/posix_file.h"
#include "checkpoint/output/journal.h"
#include "checkpoint/output/ranks.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// The folder that a run writes, from the first byte to the last rename. Held exclusively, or by
/// ranks together.
class OutputFolder {
 public:
  /// Touches nothing yet. Throws IoError.
  OutputFolder(const ModelFolder& model, const Plan& plan, const TransformOptions& options);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  /// An unfinished run without a finished shard leaves nothing behind, not even a folder.
  ~OutputFolder();

  /// Throws what open() would throw for the folder as it is now. Changes nothing.
  void check();
  /// Creates the folder, or makes the one that is there fit. A folder that holds anything is
  /// refused, except
  ///   resume     with the journal of the same options and input, or a complete output of them;
  ///   overwrite  if it looks like a model: its shards, index and configs are removed. Files that
  ///              are not of a model stay, and are named in `warnings`.
  ///   ranks      with the journal of ranks of the same options and input, or their complete
  ///   output.
  /// Throws IoError, ValueError, FormatError.
  void open();

  const std::filesystem::path& path() const { return path_; }
  /// Nothing is left to do.
  bool complete() const { return complete_; }
  /// Shards that this process need not write: an earlier run has finished them, or they are of
  /// another rank.
  const std::vector<bool>& done() const { return done_; }
  /// Of the first kind.
  int reused() const { return reused_; }
  /// Whether the shard is another rank's to write.
  bool is_of_another_rank(std::size_t shard) const {
    return !rank_of_.empty() && rank_of_[shard] != rank_;
  }
  std::vector<std::string>& warnings() { return warnings_; }
  /// Of the files that finish() has carried over.
  std::uint64_t carried_bytes() const { return carried_bytes_; }
  Journal& journal() { return journal_; }

  /// The shard is whole. Saves the journal with it and its errors: it may get its name now.
  void before_commit(std::size_t shard, const std::vector<Outcome>& errors);
  /// Whether this process is to finish the output. Of ranks it is the last one, and only now the
  /// journal knows the shards of all. Throws IoError, ValueError, FormatError.
  bool is_last();
  /// Carries the other files over and writes the card, hf_quant_config.json, the index and, last,
  /// config.json; then the output is complete and the journal makes room for a record of the run. A
  /// card that we wrote is replaced only if `whole`: by one that knows no less.
  void finish(const std::string& card, bool whole);
  /// What finish() has called the card; "" if there is none.
  const std::string& card_name() const { return card_name_; }

 private:
  enum class Start { fresh, clear, go_on, finish_again, complete };

  void create();
  void lock();
  void share();
  Start decide();
  Start decide_as_rank();
  void open_as_rank();
  bool take_records();
  void remove_rank_files() const;
  std::set<std::filesystem::path> folders_of_others() const;
  void require_own_folders() const;
  void check_written_by_this_run();
  bool rest_is_complete() const;
  void clear_old_output();
  void find_finished_shards();
  std::vector<char> recorded_shards() const;
  void remove_leftovers() const;
  void write_card(const std::string& card, bool whole);

  const ModelFolder& model_;
  const Plan& plan_;
  std::filesystem::path path_;
  Journal journal_;
  std::vector<bool> done_;
  std::vector<std::string> warnings_;
  std::vector<std::filesystem::path> created_;  ///< folders, the innermost first
  std::string card_name_;
  std::uint64_t carried_bytes_ = 0;
  bool resume_, overwrite_;
  int rank_, ranks_;
  RankFiles rank_files_;
  std::optional<PartialTag> partial_tag_;
  std::vector<int> rank_of_;  ///< of each shard; empty without ranks
  int reused_ = 0;
  FileLock rank_lock_, finish_lock_;
  bool complete_ = false, started_empty_ = false, any_shard_ = false, finished_ = false;
  Descriptor lock_;
};

/// Throws IoError if the path is a link to what is not there: it would be replaced, or removed.
void require_no_dangling_link(const std::filesystem::path& output);
/// Throws ValueError if one of the folders is the other or inside of it.
void require_apart(const std::filesystem::path& input, const std::filesystem::path& output);

}  // namespace nvfp4::checkpoint
