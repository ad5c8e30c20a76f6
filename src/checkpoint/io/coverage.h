#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>

namespace nvfp4 {

/// The byte ranges of a file that were written: disjoint ranges that do not touch, begin -> end.
/// The methods are thread-safe.
class Coverage {
 public:
  void add(std::uint64_t begin, std::uint64_t end) {
    const std::scoped_lock lock(mutex_);
    auto next = ranges_.upper_bound(begin);
    if (next != ranges_.begin() && std::prev(next)->second >= begin) {
      --next;
      begin = next->first;
    }
    while (next != ranges_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ranges_.erase(next);
    }
    ranges_.emplace_hint(next, begin, end);
  }
  /// Returns the first byte of [begin, end) that is missing, or end.
  std::uint64_t first_missing(std::uint64_t begin, std::uint64_t end) const {
    const std::scoped_lock lock(mutex_);
    const auto next = ranges_.upper_bound(begin);
    if (next == ranges_.begin()) return begin;
    return std::clamp(std::prev(next)->second, begin, end);
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> ranges_;
};

}  // namespace nvfp4
