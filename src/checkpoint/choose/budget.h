#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// Which layers may be larger, if all of them together may have so many bytes.
namespace nvfp4::checkpoint {

struct Alternative {
  std::uint64_t bytes = 0;
  double error = 0;
};
/// What one layer can become, in any order; at least one.
using Alternatives = std::vector<Alternative>;

struct Allocation {
  std::vector<std::size_t> chosen;  ///< of each layer
  std::uint64_t bytes = 0;
  double error = 0;
  double bound = 0;    ///< no choice within the budget has a smaller error
  bool exact = false;  ///< `error` is the least one
};

/// The fewest bytes.
std::uint64_t least_bytes(std::span<const Alternatives> layers);

/// Takes steps on the lower convex hulls of all layers, those with the largest gain for a byte
/// first, as long as they fit: the error is above the bound by less than the gain of a single step.
/// Requires budget >= least_bytes(). Of equal gains the first layer comes first, so that the result
/// is the same everywhere.
Allocation allocate(std::span<const Alternatives> layers, std::uint64_t budget);

/// The number of partial choices that allocate_exactly() may look at: about two seconds.
inline constexpr std::size_t kMostNodes = 8'000'000;

/// Returns the allocation with the least error, by branch and bound from that of allocate(). If
/// that takes more than `nodes` partial choices, the best one so far, with exact = false.
Allocation allocate_exactly(std::span<const Alternatives> layers, std::uint64_t budget,
                            std::size_t nodes = kMostNodes);

}  // namespace nvfp4::checkpoint
