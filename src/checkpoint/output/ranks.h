#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/io/posix_file.h"
#include "checkpoint/plan/plan.h"

/// What ranks, processes that write one folder together, keep in it: for each a record of the
/// shards it has finished, and a lock that goes with the process. They send no messages.
namespace nvfp4::checkpoint {

/// Of each shard of the plan, the rank that writes it: by bytes of input.
std::vector<int> rank_of_shards(const Plan& plan, int ranks);

/// A file whose lock one process holds until it ends, however it ends.
class FileLock {
 public:
  FileLock() = default;
  /// False if another process has it. Throws IoError, also if the file system has no locks.
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

  std::filesystem::path record() const { return record_of(rank_); }
  std::filesystem::path lock() const { return lock_of(rank_); }
  std::filesystem::path finish_lock() const {
    return folder_ / fmt::format("{}finish.lock", kRankPrefix);
  }
  /// Those of all ranks that are there.
  std::vector<std::filesystem::path> records() const;
  /// Makes `path` with that content unless it is there already: whole or not at all, also where
  /// several try at once. Throws IoError.
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
