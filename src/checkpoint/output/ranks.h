#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/io/posix_file.h"
#include "checkpoint/plan/plan.h"

/// The files of ranks, which are processes that write one folder together. Each rank has a record
/// of its finished shards, and a lock that ends with the process. Ranks send no messages.
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

/// The names of one rank's files.
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

}  // namespace nvfp4::checkpoint
