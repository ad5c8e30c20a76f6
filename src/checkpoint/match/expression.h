#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/match/match_budget.h"

namespace nvfp4::checkpoint {

/// Reports whether all characters are printable ASCII. For others, libraries differ in classes and
/// ends of lines.
bool is_plain_text(std::string_view text);

/// A regular expression in Perl's syntax, similar to that of Python's `re`. It may come from a
/// hostile file. RE2 matches what it supports, in time linear in the name. PCRE2 matches the rest
/// (lookahead, backreferences), with a budget of steps.
class Expression {
 public:
  /// The part of a name that the expression must match.
  enum class Extent { whole, start };

  /// Compiles an expression. Throws ValueError that quotes an invalid expression, with the error
  /// and its place.
  explicit Expression(std::string text, Extent extent = Extent::whole,
                      SharedBudget budget = std::make_shared<MatchBudget>());

  /// Reports whether the name matches. Throws ValueError that quotes expression and name if a match
  /// takes too long. Throws ValueError that quotes the expression if it uses up the budget.
  bool matches(std::string_view name) const;
  /// Reports whether a match takes linear time.
  bool is_linear() const;

 private:
  class Compiled;
  bool matches_step_by_step(std::string_view name) const;

  std::string text_;
  SharedBudget budget_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace nvfp4::checkpoint
