#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/match/expression.h"
#include "checkpoint/match/glob.h"

namespace nvfp4::checkpoint {

/// Returns the module of a tensor: its name without ".weight".
std::string_view module_of(std::string_view tensor);

/// Returns the parts of a dotted name.
std::vector<std::string_view> split_name(std::string_view name, char separator = '.');

enum class PatternKind { exact, glob, regex };

/// A pattern that must match the whole tensor name or the whole module name. It is an exact name, a
/// glob, or "re:" and a regular expression in Perl's syntax. In a glob, `*` is any run of
/// characters and `?` any single one, including dots.
class Pattern {
 public:
  /// Parses a pattern. Throws ValueError that quotes an empty pattern or an invalid expression.
  explicit Pattern(std::string text, SharedBudget budget = std::make_shared<MatchBudget>());

  /// Reports whether the tensor matches. Throws ValueError if the match takes too long.
  bool matches(std::string_view tensor) const;
  bool exact() const { return kind_ == PatternKind::exact; }
  const std::string& text() const { return text_; }

 private:
  bool matches_whole(std::string_view name) const;

  std::string text_;
  PatternKind kind_ = PatternKind::exact;
  SharedBudget budget_;
  std::optional<Expression> expression_;
  std::optional<Glob> glob_;
};

/// Patterns that share one budget, for many queries. Their number may be as large as that of the
/// names. Not thread-safe.
class PatternList {
 public:
  /// Parses the patterns. Throws ValueError as Pattern does.
  PatternList(std::vector<std::string> texts, SharedBudget budget);

  std::size_t size() const { return texts_.size(); }
  const std::string& text(std::size_t i) const { return texts_[i]; }
  /// Reports whether the pattern is a name.
  bool is_exact(std::size_t i) const { return names_.contains(texts_[i]); }
  /// Returns the indices of the patterns that match, ascending. Throws ValueError if that takes too
  /// long.
  std::vector<std::size_t> matching(std::string_view tensor) const;
  /// Returns the number of pattern tries in all calls.
  std::int64_t calls() const { return calls_ + expressions_->calls(); }

 private:
  SharedBudget budget_;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, std::vector<std::size_t>> names_;  ///< exact names
  std::vector<Glob> globs_;
  std::vector<std::size_t> glob_places_, expression_places_;  ///< indices of their patterns
  GlobIndex index_;                                           ///< index of globs_
  std::shared_ptr<const ExpressionSet> expressions_;
  mutable std::int64_t calls_ = 0;
};

/// Reports whether a part of a name has digits only.
inline bool is_number(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Returns "model.layers.*.mlp.up_proj" for "model.layers.7.mlp.up_proj".
std::string template_of(std::string_view module);

}  // namespace nvfp4::checkpoint
