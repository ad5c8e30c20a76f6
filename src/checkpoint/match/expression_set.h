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

#include "checkpoint/match/expression.h"

namespace nvfp4::checkpoint {

/// A list of regular expressions that finds the first one that matches the start of a name.
/// Expressions that RE2 supports are matched in sets, the others one by one.
class ExpressionSet {
 public:
  /// Compiles the expressions. Throws ValueError that quotes an invalid expression.
  ExpressionSet(std::span<const std::string_view> texts, SharedBudget budget);
  ~ExpressionSet();
  ExpressionSet(const ExpressionSet&) = delete;
  ExpressionSet& operator=(const ExpressionSet&) = delete;

  /// Returns the index of the first match before `end`. Thread-safe. Throws ValueError as
  /// Expression::matches() does.
  std::optional<std::size_t> first(std::string_view name, std::size_t end) const;

  /// Returns the number of calls of a library in all calls of first().
  std::int64_t calls() const { return calls_; }

 private:
  struct Chunk;
  void add_chunks(std::span<const std::size_t> members);
  bool matches(std::size_t expression, std::string_view name) const;
  std::optional<std::size_t> first_of(const Chunk& chunk, std::string_view name) const;

  std::vector<std::string> texts_;
  SharedBudget budget_;
  std::vector<Chunk> chunks_;        ///< in order
  std::vector<std::size_t> others_;  ///< in order
  mutable std::mutex mutex_;
  /// Null until an expression is first matched alone.
  mutable std::vector<std::unique_ptr<const Expression>> alone_;
  mutable std::atomic<std::int64_t> calls_ = 0;
};

}  // namespace nvfp4::checkpoint
