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

/// The regular expressions of a list, in its order, asked for the first that matches the start of
/// a name. Those that RE2 takes are matched many at once, the others one by one.
class ExpressionSet {
 public:
  /// Throws ValueError that quotes an invalid expression.
  ExpressionSet(std::span<const std::string_view> texts, SharedBudget budget);
  ~ExpressionSet();
  ExpressionSet(const ExpressionSet&) = delete;
  ExpressionSet& operator=(const ExpressionSet&) = delete;

  /// Which one, if it is before `end`. Thread-safe. Throws ValueError as Expression::matches()
  /// does.
  std::optional<std::size_t> first(std::string_view name, std::size_t end) const;

  /// How often a library was asked, by all calls of first().
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
  /// Null until one is asked alone.
  mutable std::vector<std::unique_ptr<const Expression>> alone_;
  mutable std::atomic<std::int64_t> calls_ = 0;
};

}  // namespace nvfp4::checkpoint
