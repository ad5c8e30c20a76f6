#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/plan/plan.h"

/// Reads input from the disk ahead of the encoding.
namespace nvfp4::checkpoint {

/// The distance of reading ahead. It exceeds two windows of the pipeline: enough for any disk, and
/// it fits into memory.
inline constexpr std::uint64_t kAheadBytes = 256 << 20;

/// Returns the part of the tensor's bytes_before that belongs to the unit.
std::uint64_t input_bytes(const Plan& plan, const Unit& unit);

/// A thread that asks the system for tensors up to kAheadBytes before they are read. It follows the
/// order of the plan and skips shards that are `done`. Data that is in memory costs almost nothing.
/// The arguments must outlive this object.
class ReadAhead {
 public:
  ReadAhead(const Plan& plan, const std::vector<bool>& done);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

  /// Reports that the first `bytes` of input are being read, in the units of copies and
  /// input_bytes().
  void advance(std::uint64_t bytes);

 private:
  void run();
  void ask_for(const PlannedTensor& tensor);
  /// Requests a part of a stored tensor that counts as `counted` bytes of input.
  void ask_for(const StoredTensor& tensor, std::uint64_t begin, std::uint64_t bytes,
               std::uint64_t counted);
  /// Returns false if reading ahead has ended.
  bool wait_until_near();

  const Plan& plan_;
  const std::vector<bool>& done_;
  std::uint64_t position_ = 0;  // used by the thread only

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t limit_;
  bool stopped_ = false;
  std::thread thread_;  // last, since it uses all of these
};

}  // namespace nvfp4::checkpoint
