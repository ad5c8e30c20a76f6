#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

namespace nvfp4::checkpoint {

/// Calls `take` with each element of a map `sorted` whose key `text` begins with, the longest
/// first. Keys that share no beginning with it are passed over, however many there are.
template <class Map, class Take>
void for_each_beginning(Map& sorted, std::string_view text, Take take) {
  // What is not after `text` and a beginning of it: each step goes to a shorter one.
  for (auto it = sorted.upper_bound(text); it != sorted.begin();) {
    const std::string_view key = std::prev(it)->first;
    const auto common =
        static_cast<std::size_t>(std::ranges::mismatch(key, text).in1 - key.begin());
    if (common == key.size()) {
      take(*std::prev(it));
      --it;
    } else {
      it = sorted.upper_bound(text.substr(0, common));
    }
  }
}

}  // namespace nvfp4::checkpoint
