#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "checkpoint/plan/plan.h"
#include "nvfp4/checkpoint/options.h"

namespace nvfp4::checkpoint {

/// The progress of a run. It is reported to the caller after each part, from any thread.
class ProgressCount {
 public:
  ProgressCount(const Plan& plan, const std::function<void(const Progress&)>& tell);
  /// Starts counting. Shards that are `done` do not count.
  void start(const std::vector<bool>& done);
  /// Counts `work` of a tensor: bytes of copies, elements of units.
  void finish(std::size_t tensor, std::uint64_t work);
  std::uint64_t bytes_total() const { return progress_.bytes_total; }

 private:
  std::uint64_t work_of(std::size_t tensor) const;

  const Plan& plan_;
  const std::function<void(const Progress&)>& tell_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> remaining_;  ///< remaining work of each tensor
  std::mutex mutex_;
  Progress progress_;
};

}  // namespace nvfp4::checkpoint
