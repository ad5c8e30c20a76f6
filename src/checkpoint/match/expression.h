#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/match/match_budget.h"

namespace nvfp4::checkpoint {

/// ASCII that can be printed. On other characters libraries differ: in classes, in ends of lines.
bool is_plain_text(std::string_view text);

/// A regular expression in Perl's syntax, which Python's `re` is near to. It may come from a
/// hostile file: RE2, in time that grows with the name, takes what it knows; PCRE2 the rest
/// (lookahead, references back), step by step out of a budget.
class Expression {
 public:
  /// What it must match of a name.
  enum class Extent { whole, start };

  /// Throws ValueError that quotes an invalid expression, and says what is wrong with it and where.
  explicit Expression(std::string text, Extent extent = Extent::whole,
                      SharedBudget budget = std::make_shared<MatchBudget>());

  /// Throws ValueError that quotes expression and name if that takes too long, or the expression
  /// if it spends the budget.
  bool matches(std::string_view name) const;
  /// Whether a match takes time that grows with the name, and no more.
  bool is_linear() const;

 private:
  class Compiled;
  bool matches_step_by_step(std::string_view name) const;

  std::string text_;
  SharedBudget budget_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace nvfp4::checkpoint
