#pragma once

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

}  // namespace nvfp4::checkpoint
