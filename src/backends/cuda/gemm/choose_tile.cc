#include "backends/cuda/gemm/choose_tile.h"

#include <algorithm>

#include "backends/cuda/gemm/fragment_layout.h"
#include "nvfp4/layout.h"

namespace nvfp4::cuda {
namespace {

constexpr int kTokens[] = {8, 16, 32, 64, 128, 256}, kRows[] = {64, 128}, kSplits[] = {1, 2, 4, 8};
constexpr int kMeasuredMultiprocessors = 132;

/// Microseconds, fitted to measurements on an H200 (least squares of the logarithms).
struct Cost {
  double launch = 0.068;
  double bytes = 2.384e6;  ///< of weights in a microsecond
  // A chunk of 64 columns in one multiprocessor: its waiting, decoding 64 rows, 64 rows x a token.
  double chunk = 0.0345, decode = 0.0375, multiply = 0.00097;
  // A tile: its start and end, and 64 rows x a token of them for each doubling of splits.
  double tile = 3.78, reduce = 0.0059;
};
constexpr Cost kCost;

int log2_of(int splits) { return splits == 1 ? 0 : splits == 2 ? 1 : splits == 4 ? 2 : 3; }

/// Clusters of several blocks leave some multiprocessors over, since they do not span GPCs.
std::int64_t usable_multiprocessors(const TileProblem& p, int splits) {
  const int left = splits <= 2 ? 0 : splits == 4 ? p.multiprocessors / 16 : p.multiprocessors / 8;
  return std::max(1, p.multiprocessors - left);
}

std::int64_t row_tiles(const TileProblem& p, const GemmTile& t) {
  return ceil_div(ceil_div(p.n, kTileRows), t.rows / kTileRows);
}

/// Tiles of tokens: as many as one must expect, and as there may be at most.
std::int64_t expected_token_tiles(const TileProblem& p, const GemmTile& t) {
  if (!p.grouped) return p.groups * ceil_div(p.rows, t.tokens);
  const std::int64_t busy = std::max<std::int64_t>(1, std::min(p.groups, p.rows));
  return busy * ceil_div(ceil_div(p.rows, busy), t.tokens);
}
std::int64_t most_token_tiles(const TileProblem& p, const GemmTile& t) {
  if (!p.grouped) return p.groups * ceil_div(p.rows, t.tokens);
  // One row in every group, and the others so that each fills up a tile more.
  const std::int64_t busy = std::min(p.groups, p.rows);
  return busy + (p.rows - busy) / t.tokens;
}

bool is_possible(const TileProblem& p, const GemmTile& t) {
  return is_tile(t) && (!p.batch_invariant || is_batch_invariant(t));
}

}  // namespace

double estimated_time(const TileProblem& p, const GemmTile& t) {
  const std::int64_t chunks = ceil_div(p.k, kTileCols);
  const std::int64_t blocks = row_tiles(p, t) * expected_token_tiles(p, t) * t.splits;
  const std::int64_t processors = usable_multiprocessors(p, t.splits);
  const auto rounds = static_cast<double>(ceil_div(blocks, processors));
  const auto waves =
      static_cast<double>(ceil_div(blocks, processors * blocks_per_multiprocessor(t.tokens)));
  const double part = static_cast<double>(t.rows) / kTileRows, area = part * t.tokens;
  const double chunk = kCost.chunk + kCost.decode * part + kCost.multiply * area;
  const double tile = kCost.tile + kCost.reduce * area * log2_of(t.splits);
  const std::int64_t groups = p.grouped ? std::min(p.groups, p.rows) : p.groups;
  const double bytes = static_cast<double>(groups * ceil_div(p.n, kTileRows) * chunks) * kTileBytes;
  return kCost.launch +
         std::max(bytes / kCost.bytes,
                  rounds * (static_cast<double>(chunks) / t.splits) * chunk + waves * tile);
}

GemmTile estimate_tile(const TileProblem& given) {
  TileProblem p = given;
  p.multiprocessors = std::max(1, p.multiprocessors);
  GemmTile best;
  double least = 0;
  for (const int tokens : kTokens)
    for (const int rows : kRows)
      for (const int splits : kSplits) {
        const GemmTile t{tokens, rows, splits};
        if (!is_possible(p, t)) continue;
        const double time = estimated_time(p, t);
        if (best.tokens != 0 && time >= least) continue;
        best = t;
        least = time;
      }
  return best;
}

GemmTile choose_tile(const TileProblem& p) {
  if (p.groups != 1 || p.multiprocessors != kMeasuredMultiprocessors) return estimate_tile(p);
  const MeasuredTile* found = nullptr;
  for (const MeasuredTile& m : measured_tiles())
    if (m.n == p.n && m.k == p.k && (found == nullptr || found->rows < p.rows)) found = &m;
  return found != nullptr && is_possible(p, found->tile) ? found->tile : estimate_tile(p);
}

std::int64_t block_count(const TileProblem& p, const GemmTile& t) {
  const std::int64_t tiles = row_tiles(p, t) * most_token_tiles(p, t) * t.splits;
  if (is_one_tile(t)) return tiles;
  const std::int64_t at_once =
      std::max<std::int64_t>(1, p.multiprocessors * blocks_per_multiprocessor(t.tokens));
  return std::min(tiles, at_once);
}

}  // namespace nvfp4::cuda
