#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/match/expression.h"
#include "checkpoint/match/glob.h"

namespace nvfp4::checkpoint {

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
