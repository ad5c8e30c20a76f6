#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/formats/declared.h"
#include "checkpoint/match/entry_list.h"

namespace nvfp4::checkpoint {

/// The exclusions of a configuration, for many queries. Their number may be as large as that of the
/// modules.
class Exclusions {
 public:
  /// Indexes the exclusions. `declared` must outlive the object. Throws FormatError for an invalid
  /// expression.
  explicit Exclusions(const Declared& declared);

  enum class Match : std::uint8_t { none, substring, whole };
  struct Found {
    Match match = Match::none;
    std::string_view entry;  ///< the entry that matches, for messages
  };
  /// Returns how the entries match a module; some loaders search for substrings. Throws FormatError
  /// for an expression that takes too long.
  Found find(std::string_view module) const;

  const EntryList& list() const { return list_; }

 private:
  const std::vector<std::string>& entries_;
  EntryList list_;
  /// The entries to search as substrings, sorted. None starts with another.
  std::vector<std::string_view> pieces_;
};

}  // namespace nvfp4::checkpoint
