#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/match/pattern.h"

namespace nvfp4::checkpoint {

/// Calibrated activation amaxes: a JSON object from a name, a glob or "re:…" to a positive number.
class InputAmax {
 public:
  InputAmax() = default;
  /// Throws FormatError if `json` is not such an object or has a key twice. Throws ValueError for
  /// an invalid pattern, or if a number's input scale, amax / 2688, is not a normal float.
  InputAmax(const std::string& json, const std::string& file,
            SharedBudget budget = std::make_shared<MatchBudget>());

  /// Returns the amax of a module: an exact name first, then the first pattern that matches,
  /// otherwise 0. Throws ValueError for an expression that takes too long.
  float find(const std::string& module);
  std::vector<std::string> warnings() const;

 private:
  class Reader;
  struct Entry {
    float amax = 0;
    bool used = false, matched = false;  ///< `matched`: even if another entry came first
  };
  std::string file_;
  std::vector<Entry> entries_;
  std::optional<PatternList> patterns_;  ///< the keys of the entries, in order
};

}  // namespace nvfp4::checkpoint
