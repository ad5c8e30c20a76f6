#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/match/glob.h"

/// The interface of both libraries. RE2 matches what it supports, in time linear in the name, and
/// 128 expressions at once: 30 times as fast as PCRE2. PCRE2 matches the rest (lookahead,
/// backreferences), with a budget of steps.
namespace nvfp4::checkpoint {

/// A regular expression in Perl's syntax, similar to that of Python's `re`. It may come from a
/// hostile file.
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

/// A list of expressions, for many names.
class ExpressionSet {
 public:
  /// Compiles the expressions. Throws ValueError that quotes an invalid expression.
  ExpressionSet(std::span<const std::string_view> texts, Expression::Extent extent,
                SharedBudget budget);
  ~ExpressionSet();
  ExpressionSet(const ExpressionSet&) = delete;
  ExpressionSet& operator=(const ExpressionSet&) = delete;

  /// Returns the index of the first match before `end`. Thread-safe. Throws ValueError as
  /// Expression::matches() does.
  std::optional<std::size_t> first(std::string_view name, std::size_t end) const;
  /// Adds the indices of all matches to `found`, in any order. Throws as first() does.
  void find_all(std::string_view name, std::vector<std::size_t>& found) const;

  /// Returns the number of calls of a library in all calls of members.
  std::int64_t calls() const { return calls_; }

 private:
  struct Chunk;
  void add_chunks(std::span<const std::size_t> members, std::vector<Chunk>& chunks,
                  std::vector<std::size_t>& others) const;
  bool matches(std::size_t expression, std::string_view name) const;
  std::vector<std::size_t> matches_of(const Chunk& chunk, std::string_view name) const;

  std::vector<std::string> texts_;
  Expression::Extent extent_;
  SharedBudget budget_;
  std::vector<Chunk> chunks_;        ///< in order
  std::vector<std::size_t> others_;  ///< in order
  mutable std::mutex mutex_;
  /// Null until an expression is first matched alone.
  mutable std::vector<std::unique_ptr<const Expression>> alone_;
  mutable std::atomic<std::int64_t> calls_ = 0;
};

/// Throws ValueError that quotes an invalid expression, with the error and its place.
void check_expression(const std::string& text);

/// Reports whether all characters are printable ASCII. For others, libraries differ in classes and
/// ends of lines.
bool is_plain_text(std::string_view text);

/// Reports whether both libraries interpret the expression alike. RE2 has no backreferences, and
/// takes \x{...} for one character.
bool means_the_same(std::string_view text);

}  // namespace nvfp4::checkpoint
