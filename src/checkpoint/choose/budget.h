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
  /// No choice within the budget has a smaller error. Of this one the error is larger by less than
  /// the gain of a single step.
  double bound = 0;
};

/// The fewest bytes.
std::uint64_t least_bytes(std::span<const Alternatives> layers);

/// Takes steps on the lower convex hulls of all layers, those with the largest gain for a byte
/// first, as long as they fit. Requires budget >= least_bytes(). Of equal gains the first layer
/// comes first, so that the result is the same everywhere.
Allocation allocate(std::span<const Alternatives> layers, std::uint64_t budget);

}  // namespace nvfp4::checkpoint
