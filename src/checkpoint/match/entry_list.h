#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/match/expression_set.h"
#include "checkpoint/match/glob.h"
#include "checkpoint/match/glob_index.h"

namespace nvfp4::checkpoint {

/// The entries of an `ignore` or a `targets`, to be asked about many modules: names, globs, and
/// "re:" with an expression that the start of a name must match, as in Python's re.match (source:
/// compressed-tensors, utils/match.py). "model." may be left out of an entry
/// that begins with it, and whatever is before a dot out of the module.
class EntryList {
 public:
  /// `entries` must outlive it. Throws FormatError that names `file` for an invalid expression.
  EntryList(const std::vector<std::string>& entries, std::string file, const SharedBudget& budget);

  /// The first that is meant for a module. Throws FormatError for one that takes too long.
  std::optional<std::size_t> first(std::string_view module) const;
  bool holds(std::string_view module) const { return first(module).has_value(); }
  /// Whether an expression is.
  bool has_expression_for(std::string_view module) const;

  /// How often a name was looked up, or a pattern tried, by all calls.
  std::int64_t calls() const { return calls_ + expressions_->calls(); }

 private:
  void add(std::string_view entry, std::size_t i);
  void add_text(std::string_view text, std::size_t i);
  bool matches(const Glob& glob, std::string_view module) const;
  std::optional<std::size_t> first_expression(std::string_view module, std::size_t end) const;

  std::string file_;
  SharedBudget budget_;
  std::unordered_map<std::string_view, std::size_t> names_;  ///< and the first entry that says so
  std::vector<Glob> globs_;  ///< of entries in their order, also without "model."
  std::vector<std::size_t> glob_entries_;
  GlobIndex index_;  ///< of globs_
  std::vector<std::size_t> expression_entries_;
  std::optional<ExpressionSet> expressions_;
  mutable std::atomic<std::int64_t> calls_ = 0;
};

}  // namespace nvfp4::checkpoint
