#include <cerrno>

#include "checkpoint/io/text_file.h"
#include "checkpoint/output/output_folder.h"
#include "checkpoint/source/content.h"
#include "core/require.h"
#include "nvfp4/checkpoint/safetensors.h"

namespace nvfp4::checkpoint {

namespace fs = std::filesystem;

std::vector<int> rank_of_shards(const Plan& plan, int ranks) {
  std::vector<std::uint64_t> bytes(plan.shards.size());
  for (const PlannedTensor& t : plan.tensors) bytes[t.shard] += t.bytes_before;
  return share_out(bytes, ranks);
}

bool FileLock::take(const fs::path& path) {
  for (;;) {
    Descriptor fd = platform::open(path, platform::Open::lock);
    if (fd.get() < 0) throw_io_error(path, "open", errno);
    if (!platform::lock(fd.get())) {
      if (errno == EWOULDBLOCK) return false;
      throw_io_error(path, "lock, which ranks need,", errno);
    }
    const auto held = platform::status_of(fd.get());
    if (!held) throw_io_error(path, "read the status of", errno);
    // The process that finished the output may have removed the file in between.
    const auto named = platform::status_of(path);
    if (!named || held->number != named->number || held->volume != named->volume) continue;
    fd_ = std::move(fd);
    return true;
  }
}

fs::path RankFiles::record_of(int rank) const {
  return folder_ / fmt::format("{}{}-of-{}.json", kRankPrefix, rank, ranks_);
}

fs::path RankFiles::lock_of(int rank) const {
  return folder_ / fmt::format("{}{}-of-{}.lock", kRankPrefix, rank, ranks_);
}

fs::path RankFiles::draft_of(int rank) const {
  return folder_ / fmt::format("{}{}-of-{}.new", kRankPrefix, rank, ranks_);
}

std::vector<fs::path> RankFiles::records() const {
  std::vector<fs::path> there;
  for (int rank = 0; rank < ranks_; ++rank)
    if (const fs::path path = record_of(rank); fs::exists(path)) there.push_back(path);
  return there;
}

void RankFiles::create(const fs::path& path, const std::string& content) const {
  const fs::path draft = draft_of(rank_);
  safetensors::write_file_atomically(draft, content);
  const bool linked = platform::link_file(draft, path);
  const int error = errno;
  fs::remove(draft);
  if (!linked && error != EEXIST) throw_io_error(path, "make a link, which ranks need, as", error);
  sync_folder(folder_);
}

void RankFiles::remove_records() const {
  if (ranks_ == 1) return;
  std::set<std::string> names;
  for (int rank = 0; rank < ranks_; ++rank)
    for (const fs::path& path : {record_of(rank), draft_of(rank)}) {
      fs::remove(path);
      names.insert(path.filename().string());
    }
  remove_partials(folder_, names);
}

void RankFiles::remove_locks() const {
  if (ranks_ == 1) return;
  for (int rank = 0; rank < ranks_; ++rank) fs::remove(lock_of(rank));
  fs::remove(finish_lock());
}

}  // namespace nvfp4::checkpoint
