#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
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
    Pattern pattern;
    float amax = 0;
    bool used = false, matched = false;  ///< `matched`: even if another entry came first
  };
  std::string file_;
  SharedBudget budget_;
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t, std::less<>> exact_;  ///< name -> entry
  std::vector<std::size_t> patterns_;                      ///< the other entries
};

}  // namespace nvfp4::checkpoint
