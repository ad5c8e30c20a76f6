#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/match/match_budget.h"

namespace nvfp4::checkpoint {

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
