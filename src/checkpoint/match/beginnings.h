#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

namespace nvfp4::checkpoint {

/// Calls `take` with each element of the map `sorted` whose key is a prefix of `text`, the longest
/// first. Keys without a common prefix with `text` are skipped, however many they are.
template <class Map, class Take>
void for_each_beginning(Map& sorted, std::string_view text, Take take) {
  // It looks at the last key at or before `text`, then at or before shorter and shorter prefixes.
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
