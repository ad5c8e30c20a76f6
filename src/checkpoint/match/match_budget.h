#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

namespace nvfp4::checkpoint {

/// The number of steps that all patterns of a checkpoint's lists may take on all names together.
/// Lists and names may come from a hostile file.
class MatchBudget {
 public:
  /// Some seconds. Twenty expressions with lookahead use a third of it on 60 000 names.
  static constexpr std::int64_t kSteps = 200'000'000;
  static constexpr std::int64_t kNanosecondsOfAStep = 15;

  explicit MatchBudget(std::int64_t steps = kSteps) : steps_(steps), left_(steps) {}

  std::int64_t left() const { return left_.load(std::memory_order_relaxed); }
  /// Subtracts steps. Thread-safe. Throws ValueError that quotes the pattern which uses the last
  /// step.
  void spend(std::int64_t steps, std::string_view pattern) {
    if (left_.fetch_sub(steps, std::memory_order_relaxed) < steps) throw_spent(pattern);
  }

 private:
  [[noreturn]] void throw_spent(std::string_view pattern) const;

  std::int64_t steps_;
  std::atomic<std::int64_t> left_;
};

/// A clock for RE2, which may rebuild its automaton at every byte of a name without a report. Then
/// a match takes a thousand times as long.
class ComputedTime {
 public:
  ComputedTime() : begin_(now()) {}
  /// Returns the steps of a pattern, at least one: the CPU time of this thread since construction.
  std::int64_t steps() const { return 1 + (now() - begin_) / MatchBudget::kNanosecondsOfAStep; }

 private:
  static std::int64_t now();
  std::int64_t begin_;
};

using SharedBudget = std::shared_ptr<MatchBudget>;

}  // namespace nvfp4::checkpoint
