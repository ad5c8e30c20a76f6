#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backends/cuda/gemm/problem.h"

/// How a product is cut up: pure functions of its sizes, tested without a GPU.
namespace nvfp4::cuda {

struct TileProblem {
  std::int64_t n = 0, k = 0;
  std::int64_t rows = 0;  ///< of x
  std::int64_t groups = 1;
  /// The groups share the rows out among themselves, the host does not know how; else each has all.
  bool grouped = false;
  /// Each of `groups` rows of out has a group that a routing names; `rows` is 1 then.
  bool routed = false;
  int multiprocessors = 0;
  bool batch_invariant = false;
  bool swiglu = false;
  bool helped = false;  ///< there is memory for the sums of helpers
  bool operator==(const TileProblem&) const = default;
};

/// Whether its kernel can do the problem.
bool is_possible(const TileProblem& problem, const GemmTile& tile);

/// A tile that exists; one whose sums do not depend on the number of rows if batch_invariant.
GemmTile choose_tile(const TileProblem& problem);

/// Some rows of x, one after the other, and the tile of their product.
struct TilePart {
  std::int64_t rows = 0;
  GemmTile tile = {};
};
/// The rows in one part, or in two (the second has none then): the first has whole rounds of tiles,
/// where a few more would cost another round. A product of one group.
std::array<TilePart, 2> choose_parts(const TileProblem& problem);

/// Whether hardly a weight is read by more than one block: it need not stay in the L2 cache then.
bool reads_weights_once(const TileProblem& problem, const GemmTile& tile);

/// Steps along K that a block takes: those that GemmTile::next counts.
std::int64_t steps_of(const TileProblem& problem, const GemmTile& tile);

/// The same without the table of measurements.
GemmTile estimate_tile(const TileProblem& problem);

/// What estimate_tile() makes as small as it can, in microseconds on one H200.
double estimated_time(const TileProblem& problem, const GemmTile& tile);

/// Whether blocks may leave `tile.help` steps of their depth to others, and there are others.
bool can_help(const TileProblem& problem, const GemmTile& tile);

/// Blocks that help the others, see GemmTile::help.
std::int64_t helper_count(const TileProblem& problem, const GemmTile& tile);

/// The grid without them: enough blocks for all tiles that there may be, or as many as run at once
/// where a block takes one tile after the other. Not more than 2^31 if rows · n / 64² is not.
std::int64_t block_count(const TileProblem& problem, const GemmTile& tile);

/// What was the fastest, measured by bench/ on one H200, of one group.
struct MeasuredTile {
  std::int64_t n, k;
  std::int64_t rows;  ///< of x: up to this many
  GemmTile tile;
  GemmTile helped = {};  ///< with help, if that was faster
};
/// Ordered by n and k, and then by rows.
std::span<const MeasuredTile> measured_tiles();

}  // namespace nvfp4::cuda
