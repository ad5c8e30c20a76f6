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

/// The module of a tensor: its name less ".weight".
std::string_view module_of(std::string_view tensor);

/// The parts of a dotted name.
std::vector<std::string_view> split_name(std::string_view name, char separator = '.');

/// An exact name, a glob (`*` any run, `?` any one character, dots too), or "re:" and a regular
/// expression in Perl's syntax. It must match the whole tensor name or the whole module name.
class Pattern {
 public:
  /// Throws ValueError that quotes an empty pattern or an invalid expression.
  explicit Pattern(std::string text, SharedBudget budget = std::make_shared<MatchBudget>());

  /// Throws ValueError if it takes too long.
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

/// Patterns that share one budget, to be asked about many names: there may be as many patterns.
/// Not thread-safe.
class PatternList {
 public:
  /// Throws ValueError as Pattern does.
  PatternList(const std::vector<std::string>& texts, SharedBudget budget);

  std::size_t size() const { return patterns_.size(); }
  const Pattern& operator[](std::size_t i) const { return patterns_[i]; }
  /// Which match, ascending. Throws ValueError if that takes too long.
  std::vector<std::size_t> matching(std::string_view tensor) const;
  /// How often a pattern was tried, by all calls.
  std::int64_t calls() const { return calls_; }

 private:
  SharedBudget budget_;
  std::vector<Pattern> patterns_;
  std::unordered_map<std::string, std::vector<std::size_t>> names_;  ///< exact ones
  std::vector<std::size_t> globs_, expressions_;
  GlobIndex index_;  ///< of globs_
  mutable std::int64_t calls_ = 0;
};

}  // namespace nvfp4::checkpoint
