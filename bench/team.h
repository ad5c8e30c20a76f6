#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace nvfp4::bench {

/// Threads that wait in a loop, so that a start takes less than a microsecond.
class Team {
 public:
  explicit Team(std::size_t size) {
    for (std::size_t t = 1; t < size; ++t)
      others_.emplace_back([this, t](const std::stop_token& stop) { serve(stop, t); });
  }

  std::size_t size() const { return others_.size() + 1; }

  /// Runs part(0), ..., part(size() - 1) at the same time, the first one in this thread.
  void run(const std::function<void(std::size_t)>& part) {
    part_ = &part;
    busy_ = others_.size();
    ++round_;
    part(0);
    while (busy_ != 0) std::this_thread::yield();
  }

 private:
  void serve(const std::stop_token& stop, std::size_t t) {
    for (std::size_t seen = 0; !stop.stop_requested();) {
      if (round_ == seen) {
        std::this_thread::yield();
        continue;
      }
      ++seen;
      (*part_)(t);
      --busy_;
    }
  }

  const std::function<void(std::size_t)>* part_ = nullptr;
  std::atomic<std::size_t> round_ = 0, busy_ = 0;
  std::vector<std::jthread> others_;  // last member: the threads end before the data that they read
};

}  // namespace nvfp4::bench
