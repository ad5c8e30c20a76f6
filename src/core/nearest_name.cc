#include "core/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace nvfp4 {
namespace {

/// Returns the number of insertions, deletions, replacements and swaps of neighbors between two
/// words.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = last;
    last = now;
  }
  return last[b.size()];
}

std::size_t distance(std::string_view word, std::string_view name) {
  return word.size() >= 3 && name.starts_with(word) ? 1 : edits(word, name);
}

}  // namespace

std::size_t nearest_name(std::string_view word, const std::vector<std::string>& names) {
  constexpr std::size_t kLongest = 256;
  std::size_t nearest = names.size();
  if (word.size() < 2 || word.size() > kLongest) return nearest;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (const std::size_t d = distance(word, names[i]); d < least) {
      least = d;
      nearest = i;
    }
  return nearest;
}

}  // namespace nvfp4
