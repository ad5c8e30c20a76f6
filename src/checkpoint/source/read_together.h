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

/// How much waits for a file system at the same time.
inline constexpr std::size_t kReadsTogether = 32;

/// work(i) for each i < count, kReadsTogether of them at a time, however few processors there are:
/// for reads that take long because the file system is far away. Of what they throw, that of the
/// smallest i is thrown, after all have ended.
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
      break;  // as many as the system has
    }
  }
  run();
  others.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace nvfp4::checkpoint
