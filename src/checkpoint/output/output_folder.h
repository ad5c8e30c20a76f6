#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/io/posix_file.h"
#include "checkpoint/output/journal.h"
#include "checkpoint/output/output.h"
#include "checkpoint/output/own_files.h"
#include "checkpoint/output/ranks.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// The folder that a run writes, from the first byte to the last rename. Held exclusively, or by
/// ranks together.
class OutputFolder final : public Output {
 public:
  /// Touches nothing yet. Throws IoError.
  OutputFolder(const ModelFolder& model, const Plan& plan, const TransformOptions& options);
  /// An unfinished run without a finished shard leaves nothing behind, not even a folder.
  ~OutputFolder() override;

  void check() override;
  /// Creates the folder, or makes the one that is there fit. A folder that holds anything is
  /// refused, except
  ///   resume     with the journal of the same options and input, or a complete output of them;
  ///   overwrite  if this program wrote files of it, which are removed. Other files stay and are
  ///              named in `warnings`; one that a loader would read is an error.
  ///   ranks      with the journal of ranks of the same options and input, or their complete
  ///   output.
  /// Throws IoError, ValueError, FormatError.
  void open() override;
  bool replaces() const override { return overwrite_; }
  bool complete() const override { return complete_; }
  int reused() const override { return reused_; }
  bool is_of_another_rank(std::size_t shard) const override {
    return !rank_of_.empty() && rank_of_[shard] != rank_;
  }
  std::unique_ptr<ShardWriter> open_shard(std::size_t shard) const override;
  /// Saves the journal with the shard and its errors.
  void before_commit(std::size_t shard, ShardWriter& writer,
                     const std::vector<Outcome>& errors) override;
  /// Of ranks it is the last one, and only now the journal knows the shards of all. Throws IoError,
  /// ValueError, FormatError.
  bool is_last() override;
  bool recall(std::size_t shard, std::vector<Outcome>& all) const override {
    return journal_.recall(plan_.shards[shard], all);
  }
  /// Carries the other files over and writes the card, hf_quant_config.json, the index and, last,
  /// config.json; then the output is complete and the journal makes room for a record of the run. A
  /// card that we wrote is replaced only if `whole`: by one that knows no less.
  void finish(QuantizeReport& report, bool whole) override;

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
  bool has_changed(const std::function<bool(std::size_t)>& counts) const;
  void save_list(const std::string& card);
  void clear_old_output();
  std::string lack_of_room(Start start) const;
  void warn_of_room(Start start);
  void require_room(Start start) const;
  void find_finished_shards();
  std::vector<char> recorded_shards(bool whole) const;
  void remove_leftovers() const;
  void write_card(const std::string& card, bool whole, QuantizeReport& report) const;

  const ModelFolder& model_;
  const Plan& plan_;
  const TransformOptions& options_;
  std::filesystem::path path_;
  WrittenFiles files_;
  FolderContent old_;  ///< that --overwrite replaces
  Journal journal_;
  std::vector<std::filesystem::path> created_;  ///< folders, the innermost first
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

}  // namespace nvfp4::checkpoint
