#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/plan/plan.h"

/// Input that is on its way from the disk while what came before it is encoded.
namespace nvfp4::checkpoint {

/// Two windows of the pipeline and more: enough for any disk, little enough to stay in memory.
inline constexpr std::uint64_t kAheadBytes = 256 << 20;

/// What a unit takes of its tensor's bytes_before.
std::uint64_t input_bytes(const Plan& plan, const Unit& unit);

/// A thread that asks the system for the tensors of the shards whose `done` is false, in the order
/// of the plan, up to kAheadBytes before they are read. What is in memory already costs next to
/// nothing. The arguments must outlive it.
class ReadAhead {
 public:
  ReadAhead(const Plan& plan, const std::vector<bool>& done);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

  /// The first `bytes` of input, as copies and input_bytes() count it, are being read.
  void advance(std::uint64_t bytes);

 private:
  void run();
  void ask_for(const PlannedTensor& tensor);
  /// Part of a stored tensor, which counts as `counted` bytes of input.
  void ask_for(const StoredTensor& tensor, std::uint64_t begin, std::uint64_t bytes,
               std::uint64_t counted);
  /// False if nothing more is wanted.
  bool wait_until_near();

  const Plan& plan_;
  const std::vector<bool>& done_;
  std::uint64_t position_ = 0;  // of the thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t limit_;
  bool stopped_ = false;
  std::thread thread_;  // last, since it uses all of these
};

}  // namespace nvfp4::checkpoint
