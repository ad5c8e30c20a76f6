#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/match/match_budget.h"

namespace nvfp4::checkpoint {

/// A name with `*` for any run of characters and `?` for any single one, including dots. It is
/// parsed once. A match searches each run between two `*` once, from left to right.
class Glob {
 public:
  explicit Glob(std::string text);

  /// Reports whether a name matches. Throws ValueError if the budget is used up.
  bool matches(std::string_view name, MatchBudget& budget) const;
  const std::string& text() const { return text_; }
  /// Returns the common start of all names that match.
  std::string_view literal_prefix() const;
  bool starts_with_star() const { return text_.starts_with('*'); }

 private:
  struct Run {
    std::size_t begin = 0, size = 0;  ///< place in text_
    bool plain = true;                ///< contains no '?'
  };
  std::size_t find(const Run& run, std::string_view name, std::size_t from,
                   MatchBudget& budget) const;
  bool matches_at(const Run& run, std::string_view name, std::size_t at) const;
  std::string_view text_of(const Run& run) const {
    return std::string_view(text_).substr(run.begin, run.size);
  }

  std::string text_;
  std::vector<Run> runs_;  ///< runs between the stars; the first and the last may be empty
};

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

/// An index of globs. It finds the globs that may match a text by one literal part of each. That
/// part is the one that the fewest other globs have.
class GlobIndex {
 public:
  GlobIndex() = default;
  /// Indexes globs, numbered from 0.
  explicit GlobIndex(std::span<const std::string_view> globs);

  /// Returns candidates in ascending order. They include all globs that match the text or a part of
  /// it. Throws ValueError if the budget is used up.
  std::vector<std::size_t> candidates(std::string_view text, MatchBudget& budget) const;

 private:
  std::size_t count_ = 0, longest_ = 0;  ///< number of globs, longest part in bytes
  std::string called_;                   ///< name in errors
  std::map<std::string, std::vector<std::size_t>, std::less<>> by_part_;
  std::vector<std::size_t> others_;  ///< globs without a literal part
};

}  // namespace nvfp4::checkpoint
