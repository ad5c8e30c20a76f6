#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/formats/declared.h"
#include "checkpoint/match/entry_list.h"

namespace nvfp4::checkpoint {

/// What a configuration excludes, to be asked about many modules: there may be as many entries.
class Exclusions {
 public:
  /// `declared` must outlive it. Throws FormatError for an expression that is invalid.
  explicit Exclusions(const Declared& declared);

  enum class Match : std::uint8_t { none, substring, whole };
  struct Found {
    Match match = Match::none;
    std::string_view entry;  ///< that matches, for messages
  };
  /// How the entries match a module: some loaders look for substrings. Throws FormatError for an
  /// expression that takes too long.
  Found find(std::string_view module) const;

  const EntryList& list() const { return list_; }

 private:
  const std::vector<std::string>& entries_;
  EntryList list_;
  std::vector<std::string_view> pieces_;  ///< sorted, none begins with another; to look for
};

}  // namespace nvfp4::checkpoint
