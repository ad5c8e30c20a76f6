#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/match/expression.h"
#include "checkpoint/match/glob.h"
#include "checkpoint/match/glob_index.h"

namespace nvfp4::checkpoint {

/// Returns the module of a tensor: its name without ".weight".
std::string_view module_of(std::string_view tensor);

/// Returns the parts of a dotted name.
std::vector<std::string_view> split_name(std::string_view name, char separator = '.');

/// A pattern that must match the whole tensor name or the whole module name. It is an exact name, a
/// glob, or "re:" and a regular expression in Perl's syntax. In a glob, `*` is any run of
/// characters and `?` any single one, including dots.
class Pattern {
 public:
  /// Parses a pattern. Throws ValueError that quotes an empty pattern or an invalid expression.
  explicit Pattern(std::string text, SharedBudget budget = std::make_shared<MatchBudget>());

  /// Reports whether the tensor matches. Throws ValueError if the match takes too long.
  bool matches(std::string_view tensor) const;
  bool exact() const { return kind_ == Kind::exact; }
  bool is_glob() const { return kind_ == Kind::glob; }
  const std::string& text() const { return text_; }

 private:
  enum class Kind { exact, glob, regex };
  bool matches_whole(std::string_view name) const;

  std::string text_;
  Kind kind_ = Kind::exact;
  SharedBudget budget_;
  std::optional<Expression> expression_;
  std::optional<Glob> glob_;
};

/// Patterns that share one budget, for many queries. Their number may be as large as that of the
/// names. Not thread-safe.
class PatternList {
 public:
  /// Parses the patterns. Throws ValueError as Pattern does.
  PatternList(const std::vector<std::string>& texts, SharedBudget budget);

  std::size_t size() const { return patterns_.size(); }
  const Pattern& operator[](std::size_t i) const { return patterns_[i]; }
  /// Returns the indices of the patterns that match, ascending. Throws ValueError if that takes too
  /// long.
  std::vector<std::size_t> matching(std::string_view tensor) const;
  /// Returns the number of pattern tries in all calls.
  std::int64_t calls() const { return calls_; }

 private:
  SharedBudget budget_;
  std::vector<Pattern> patterns_;
  std::unordered_map<std::string, std::vector<std::size_t>> names_;  ///< exact names
  std::vector<std::size_t> globs_, expressions_;
  GlobIndex index_;  ///< index of globs_
  mutable std::int64_t calls_ = 0;
};

}  // namespace nvfp4::checkpoint
