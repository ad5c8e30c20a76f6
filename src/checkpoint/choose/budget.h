#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

/// Chooses larger formats for some layers within a budget of bytes for all.
namespace nvfp4::checkpoint {

struct Alternative {
  std::uint64_t bytes = 0;
  double error = 0;
  std::uint64_t slow = 0;  ///< multiplications that are not W4A4, in any unit
};
/// The formats that a layer can get, in any order; at least one.
using Alternatives = std::vector<Alternative>;

struct Allocation {
  std::vector<std::size_t> chosen;  ///< chosen alternative of each layer
  std::uint64_t bytes = 0;
  double error = 0;
  std::uint64_t slow = 0;
  double bound = 0;    ///< lower bound of the error of any choice within the budget
  bool exact = false;  ///< true if `error` is the minimum
};

/// Returns the smallest possible sum of bytes.
std::uint64_t least_bytes(std::span<const Alternatives> layers);

/// The budgets of all layers together.
struct Budget {
  std::uint64_t bytes = 0;
  std::uint64_t slow = std::numeric_limits<std::uint64_t>::max();
};

/// Takes steps on the lower convex hulls of all layers while they fit. Steps with the largest gain
/// per byte come first; with equal gains the first layer does, so the result is the same
/// everywhere. The error exceeds the bound by less than the gain of one step. With a budget of slow
/// multiplications each of them costs the least price at which the result is within the budget.
/// Requires budget.bytes >= least_bytes(), and that each layer's smallest alternatives include one
/// without slow multiplications if these have a budget.
Allocation allocate(std::span<const Alternatives> layers, Budget budget);

/// The number of partial choices that allocate_exactly() may examine; they take about two seconds.
inline constexpr std::size_t kMostNodes = 8'000'000;

/// Returns the allocation with the least error, by branch and bound from that of allocate(). After
/// `nodes` partial choices it returns the best one so far, with exact = false.
Allocation allocate_exactly(std::span<const Alternatives> layers, Budget budget,
                            std::size_t nodes = kMostNodes);

}  // namespace nvfp4::checkpoint
