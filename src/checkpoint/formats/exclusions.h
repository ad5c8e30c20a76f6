#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/formats/declared.h"

namespace nvfp4::checkpoint {

/// What a configuration excludes, to be asked about many modules: there may be as many entries.
class Exclusions {
 public:
  /// `declared` must outlive it.
  explicit Exclusions(const Declared& declared);

  enum class Match : std::uint8_t { none, substring, whole };
  struct Found {
    Match match = Match::none;
    std::string_view entry;  ///< that matches, for messages
  };
  /// How the entries match a module: some loaders look for substrings. Throws FormatError for an
  /// expression that is invalid or takes too long.
  Found find(std::string_view module) const;

 private:
  void add_pattern(std::string_view entry, std::size_t i);
  std::vector<std::size_t> candidates(std::string_view module) const;

  const Declared& declared_;
  const std::vector<std::string>& entries_;
  std::unordered_map<std::string_view, std::size_t> names_;  ///< and the first entry that says so
  /// Globs by what is literal before the first star or question mark.
  std::map<std::string_view, std::vector<std::size_t>> globs_;
  std::vector<std::size_t> patterns_;     ///< all other entries
  std::vector<std::string_view> pieces_;  ///< sorted, none begins with another; to look for
};

}  // namespace nvfp4::checkpoint
