#pragma once

#include <atomic>
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

/// The entries of an `ignore` or a `targets`, for many queries. An entry is a name, a glob, or
/// "re:" and an expression. As in Python's re.match, an expression must match the start of a
/// module's name. A name or a glob also matches the rest of a module behind any dot. If it starts
/// with "model.", it matches without that, too. Source: compressed-tensors, utils/match.py.
class EntryList {
 public:
  /// Indexes the entries. `entries` must outlive the object. Throws FormatError with `file` for an
  /// invalid expression.
  EntryList(const std::vector<std::string>& entries, std::string file, const SharedBudget& budget);

  /// Returns the index of the first entry that matches a module. Throws FormatError for an
  /// expression that takes too long.
  std::optional<std::size_t> first(std::string_view module) const;
  bool holds(std::string_view module) const { return first(module).has_value(); }

  /// Returns the number of name lookups and pattern tries in all calls.
  std::int64_t calls() const { return calls_ + expressions_->calls(); }

 private:
  void add(std::string_view entry, std::size_t i);
  void add_text(std::string_view text, std::size_t i);
  bool matches(const Glob& glob, std::string_view module) const;
  std::optional<std::size_t> first_expression(std::string_view module, std::size_t end) const;

  std::string file_;
  SharedBudget budget_;
  /// The index of the first entry with each name.
  std::unordered_map<std::string_view, std::size_t> names_;
  std::vector<Glob> globs_;  ///< in the order of entries, also without "model."
  std::vector<std::size_t> glob_entries_;
  GlobIndex index_;  ///< index of globs_
  std::vector<std::size_t> expression_entries_;
  std::optional<ExpressionSet> expressions_;
  mutable std::atomic<std::int64_t> calls_ = 0;
};

}  // namespace nvfp4::checkpoint
