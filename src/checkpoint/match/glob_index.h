#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/match/match_budget.h"

namespace nvfp4::checkpoint {

/// Which of many globs may match a text: those of which it holds a literal part, each found by the
/// part that fewest others have.
class GlobIndex {
 public:
  GlobIndex() = default;
  /// They are numbered from 0.
  explicit GlobIndex(std::span<const std::string_view> globs);

  /// Ascending. Globs that match the text, or a part of it, are among them. Throws ValueError if
  /// the budget is spent.
  std::vector<std::size_t> candidates(std::string_view text, MatchBudget& budget) const;

 private:
  std::size_t count_ = 0, longest_ = 0;  ///< globs, bytes of a part
  std::string called_;                   ///< by errors
  std::map<std::string, std::vector<std::size_t>, std::less<>> by_part_;
  std::vector<std::size_t> others_;  ///< nothing of them is literal
};

}  // namespace nvfp4::checkpoint
