#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::checkpoint {

/// The number of steps that all patterns of a checkpoint's lists may take on all names together.
/// Lists and names may come from a hostile file.
class MatchBudget {
 public:
  /// Some seconds. Twenty expressions with lookahead use a third of it on 60 000 names.
  static constexpr std::int64_t kSteps = 200'000'000;
  static constexpr std::int64_t kNanosecondsOfAStep = 15;

  explicit MatchBudget(std::int64_t steps = kSteps) : steps_(steps), left_(steps) {}

  std::int64_t left() const { return left_.load(std::memory_order_relaxed); }
  /// Subtracts steps. Thread-safe. Throws ValueError that quotes the pattern which uses the last
  /// step.
  void spend(std::int64_t steps, std::string_view pattern) {
    if (left_.fetch_sub(steps, std::memory_order_relaxed) < steps) throw_spent(pattern);
  }

 private:
  [[noreturn]] void throw_spent(std::string_view pattern) const;

  std::int64_t steps_;
  std::atomic<std::int64_t> left_;
};

/// A clock for RE2, which may rebuild its automaton at every byte of a name without a report. Then
/// a match takes a thousand times as long.
class ComputedTime {
 public:
  ComputedTime() : begin_(now()) {}
  /// Returns the steps of a pattern, at least one: the CPU time of this thread since construction.
  std::int64_t steps() const { return 1 + (now() - begin_) / MatchBudget::kNanosecondsOfAStep; }

 private:
  static std::int64_t now();
  std::int64_t begin_;
};

using SharedBudget = std::shared_ptr<MatchBudget>;

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
