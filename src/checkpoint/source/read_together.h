#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace nvfp4::checkpoint {

/// The number of reads that wait for a file system at the same time.
inline constexpr std::size_t kReadsTogether = 32;

/// Calls work(i) for each i < count, up to kReadsTogether at a time on any number of processors. It
/// is for reads from slow remote file systems. After all calls have ended, it throws the error of
/// the smallest i, if any.
template <class Work>
void read_together(std::size_t count, const Work& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t failed = count;
  std::exception_ptr error;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) error = std::current_exception();
        failed = std::min(failed, i);
      }
    }
  };
  std::vector<std::jthread> others;
  for (std::size_t t = 1; t < std::min(count, kReadsTogether); ++t) {
    try {
      others.emplace_back(run);
    } catch (const std::system_error&) {
      break;  // The system has no more threads.
    }
  }
  run();
  others.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace nvfp4::checkpoint
