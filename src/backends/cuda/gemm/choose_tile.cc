#include "backends/cuda/gemm/choose_tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cuda/gemm/fragment_layout.h"
#include "nvfp4/layout.h"

namespace nvfp4::cuda {
namespace {

constexpr int kRows[] = {16, 32, 64, 128, 192};
constexpr int kSplits[] = {1, 2, 4, 8};
constexpr int kMeasuredMultiprocessors = 132;

/// Microseconds, fitted to measurements on an H200 (least squares of the logarithms).
struct Cost {
  double bytes = 3.785e6;  ///< of weights in a microsecond
  // A chunk of 64 columns in one multiprocessor: its waiting, decoding 64 rows, 64 rows x a token.
  double chunk = 0.0134, decode = 0.0444, multiply = 0.000971;
  double copied = 102e3;  ///< bytes that reach a multiprocessor in a microsecond: 64 a cycle
  // A tile: its start and end, and 64 rows x a token of them for each doubling of splits. One that
  // a block takes after another hides most of it, unless there are no registers for that.
  double tile = 2.66, next_tile = 0.40, next_tile_of_256 = 1.6, reduce = 0.0053;
  double helped = 0.7;        ///< of the time for the steps that helpers take, what is gained
  double second_product = 3;  ///< of the same x: its start, and the wait for the first
};
constexpr Cost kCost;

int log2_of(int splits) { return splits == 1 ? 0 : splits == 2 ? 1 : splits == 4 ? 2 : 3; }

/// Clusters of several blocks leave some multiprocessors over, since they do not span GPCs.
std::int64_t usable_multiprocessors(const TileProblem& p, int splits) {
  const int left = splits <= 2 ? 0 : splits == 4 ? p.multiprocessors / 16 : p.multiprocessors / 8;
  return std::max(1, p.multiprocessors - left);
}

std::int64_t row_tiles(const TileProblem& p, const GemmTile& t) { return ceil_div(p.n, t.rows); }

/// Calls f(rows, chance) for the numbers of rows that a group may have, some of them for their
/// neighbours, too: rows fall upon groups at random (Poisson's distribution, and the normal one
/// where that is as good).
template <class F>
void for_each_group_size(double mean, const F& f) {
  const double six_deviations = 6 * std::sqrt(mean);
  const auto last = static_cast<std::int64_t>(mean + six_deviations) + 1;
  if (mean <= 64) {
    double chance = std::exp(-mean);
    for (std::int64_t rows = 1; rows <= last; ++rows) {
      chance *= mean / static_cast<double>(rows);
      f(rows, chance);
    }
    return;
  }
  const auto above = [&](std::int64_t rows) {
    return 0.5 * std::erfc((static_cast<double>(rows) + 0.5 - mean) / std::sqrt(2 * mean));
  };
  const auto first = std::max<std::int64_t>(1, static_cast<std::int64_t>(mean - six_deviations));
  const std::int64_t step = 1 + (last - first) / 64;
  double before = above(first - 1);
  for (std::int64_t rows = first; rows <= last; rows += step) {
    const double after = above(rows + step - 1);
    f(rows + (step - 1) / 2, before - after);
    before = after;
  }
}

/// What the tiles of a group take that one must expect; cost(tokens): a tile that multiplies so
/// many.
template <class TileCost>
double expected_cost(const TileProblem& p, const GemmTile& t, const TileCost& cost) {
  double sum = 0;
  const double mean = static_cast<double>(p.rows) / static_cast<double>(p.groups);
  for_each_group_size(mean, [&](std::int64_t rows, double chance) {
    const std::int64_t tiles = ceil_div(rows, t.tokens);
    const auto width = static_cast<std::int64_t>(
        tile_width(t, static_cast<int>(std::min(rows, p.rows)), static_cast<int>(tiles)));
    const auto left = static_cast<int>(rows - (tiles - 1) * width);
    sum += chance * (static_cast<double>(tiles - 1) * cost(static_cast<int>(width)) +
                     cost(shape_of(t, left)));
  });
  return sum;
}

/// Tiles of tokens: as many as one must expect, and as there may be at most.
double expected_group_tiles(const TileProblem& p, const GemmTile& t) {
  return expected_cost(p, t, [](int) { return 1.0; }) * static_cast<double>(p.groups);
}
std::int64_t expected_token_tiles(const TileProblem& p, const GemmTile& t) {
  if (!p.grouped) return p.groups * ceil_div(p.rows, t.tokens);
  return std::max<std::int64_t>(1, std::llround(expected_group_tiles(p, t)));
}
std::int64_t most_token_tiles(const TileProblem& p, const GemmTile& t) {
  if (!p.grouped) return p.groups * ceil_div(p.rows, t.tokens);
  // One row in every group, and the others so that each fills up a tile more.
  const std::int64_t busy = std::min(p.groups, p.rows);
  return busy + (p.rows - busy) / t.tokens;
}

bool is_sensible(const TileProblem& p, const GemmTile& t) {
  return is_tile(t) && is_possible(p, t) && (!p.batch_invariant || is_batch_invariant(t)) &&
         (t.tokens <= 16 || t.tokens < 2 * p.rows);
}

/// Whether the groups have enough for every multiprocessor: then tiles of 128 or 192 rows, which a
/// block takes one after the other, are the fastest.
bool fills_multiprocessors(const TileProblem& p) {
  const GemmTile smallest{8, 128, 1};
  return p.grouped && p.rows > 0 &&
         static_cast<double>(row_tiles(p, smallest)) * expected_group_tiles(p, smallest) >=
             static_cast<double>(p.multiprocessors);
}
/// Microseconds of a problem that fills them: what 64 rows of a chunk take, a token that is copied,
/// and one that is multiplied with 64 rows. Fitted to 256 experts on an H200 with 512 to 8192
/// tokens, 5 % off.
double filled_time(const TileProblem& p, const GemmTile& t) {
  if (t.rows < 128 || t.splits != 1 || is_strips(t)) return std::numeric_limits<double>::infinity();
  constexpr double kRowsOf64 = 0.0600, kCopied = 0.000631, kMultiplied = 0.000924;
  const auto chunk = [&](int tokens) {
    return kCopied * t.tokens + row_groups(t) * (kRowsOf64 + kMultiplied * tokens);
  };
  return expected_cost(p, t, chunk) *
         static_cast<double>(p.groups * row_tiles(p, t) * ceil_div(p.k, kTileCols)) /
         static_cast<double>(p.multiprocessors);
}

/// Microseconds of blocks that take strips, fitted to 60 products of up to 16 rows.
double strips_time(const TileProblem& p, const GemmTile& t) {
  constexpr double kStart = 1.36, kBlock = 0.92, kStep = 0.265, kShared = 0.00072;
  const auto parts = static_cast<double>(strip_parts(t));
  const double steps = std::ceil(static_cast<double>(ceil_div(p.k, kTileCols)) / parts);
  const double step = kStep + (t.tokens == kOwnXTokens ? 0 : kShared * t.tokens * parts);
  const std::int64_t blocks = row_tiles(p, t) * expected_token_tiles(p, t);
  return kStart + static_cast<double>(ceil_div(blocks, usable_multiprocessors(p, 1))) *
                      (steps * step + kBlock);
}

/// Microseconds of rows that have weights of their own: a block's start, and what decoding a chunk
/// takes where the warps of one or two blocks share a multiprocessor.
double routed_time(const TileProblem& p, const GemmTile& t) {
  constexpr double kStart = 2.5, kBlock = 2.0, kChunk = 0.0145;
  const std::int64_t chunks = ceil_div(ceil_div(p.k, kTileCols), strip_parts(t));
  const std::int64_t blocks = block_count(p, t);
  const std::int64_t processors = usable_multiprocessors(p, 1);
  const auto waves = static_cast<double>(ceil_div(blocks, 2 * processors));
  const auto at_once = static_cast<double>(std::min<std::int64_t>(2, ceil_div(blocks, processors)));
  const double warps = t.rows / 16.0 * strip_parts(t);
  const double bytes = static_cast<double>(p.groups * ceil_div(p.n, kTileRows) *
                                           ceil_div(p.k, kTileCols) * kTileBytes);
  return kStart +
         std::max(bytes / kCost.bytes,
                  waves * at_once * warps * static_cast<double>(chunks) * kChunk) +
         waves * kBlock;
}

}  // namespace

std::int64_t helper_count(const TileProblem& p, const GemmTile& t) {
  if (t.help == 0) return 0;
  const std::int64_t blocks = block_count(p, t);
  const std::int64_t at_once = usable_multiprocessors(p, t.splits) * blocks_per_multiprocessor(t);
  return std::clamp<std::int64_t>(at_once - blocks, 0, blocks) / t.splits * t.splits;
}

bool can_help(const TileProblem& p, const GemmTile& t) {
  if (!p.helped || !has_helpers(t) || p.groups != 1 || p.grouped || p.routed || p.swiglu ||
      p.batch_invariant)
    return false;
  // Whole steps, of which each block keeps some.
  const std::int64_t chunks = ceil_div(p.k, kTileCols);
  const std::int64_t slices = block_count(p, t), helpers = helper_count(p, t);
  return chunks % stage_chunks(t) == 0 && t.help < chunks / stage_chunks(t) / t.splits &&
         slices <= kMostSlices && slices * help_sum_bytes(t) <= kHelpSumBytes && helpers > 0 &&
         slices <= kMostSlicesOfHelper * helpers;
}

bool is_possible(const TileProblem& p, const GemmTile& t) {
  // A warp copies whole chunks of x; 16 outputs of SwiGLU, which are quantized together, have 32
  // rows of gate and up.
  return (t.tokens != kOwnXTokens || p.k % kTileCols == 0) && (!p.swiglu || t.rows >= 32) &&
         p.routed == is_routed(t) && (!p.routed || p.k <= kMostRoutedDepth) &&
         (t.help == 0 || can_help(p, t));
}

namespace {
/// Helpers have several slices, each of which takes them a step more, in the time that the others
/// need for the steps that they keep. Where a few steps are left to them, it is not worth it.
int estimated_help(const TileProblem& p, GemmTile t) {
  constexpr std::int64_t kWorthwhileHelp = 4;
  t.help = 1;
  if (!can_help(p, t)) return 0;
  const std::int64_t slices = ceil_div(block_count(p, t), helper_count(p, t));
  const std::int64_t help = (steps_of(p, t) - slices) / (slices + 1);
  return slices > 1 && help >= kWorthwhileHelp ? static_cast<int>(help) : 0;
}

double time_of(const TileProblem& p, bool fills, const GemmTile& t) {
  if (fills) return filled_time(p, t);
  if (is_strips(t)) return strips_time(p, t);
  if (is_routed(t)) return routed_time(p, t);
  const std::int64_t chunks = ceil_div(p.k, kTileCols);
  const std::int64_t blocks = row_tiles(p, t) * expected_token_tiles(p, t) * t.splits;
  const std::int64_t processors = usable_multiprocessors(p, t.splits);
  const auto rounds = static_cast<double>(ceil_div(blocks, processors));
  const auto waves =
      static_cast<double>(ceil_div(blocks, processors * blocks_per_multiprocessor(t)));
  const double part = static_cast<double>(t.rows) / kTileRows, area = part * t.tokens;
  const double copied = static_cast<double>(t.tokens * kTileCols * 2) + part * kTileBytes;
  const double chunk =
      std::max(kCost.chunk + kCost.decode * part + kCost.multiply * area, copied / kCost.copied);
  const double tile = kCost.tile + kCost.reduce * area * log2_of(t.splits);
  const std::int64_t groups = p.grouped ? std::min(p.groups, p.rows) : p.groups;
  const double bytes = static_cast<double>(groups * ceil_div(p.n, kTileRows) * chunks) * kTileBytes;
  const double next = is_one_tile(t)                     ? tile
                      : t.tokens == 256 && t.rows == 128 ? kCost.next_tile_of_256
                                                         : kCost.next_tile;
  const double kept =
      1 - kCost.helped * t.help / static_cast<double>(std::max<std::int64_t>(1, steps_of(p, t)));
  return std::max(
      bytes / kCost.bytes,
      rounds * (static_cast<double>(chunks) / t.splits) * kept * chunk + tile + (waves - 1) * next);
}
}  // namespace

double estimated_time(const TileProblem& p, const GemmTile& t) {
  return time_of(p, fills_multiprocessors(p), t);
}

bool reads_weights_once(const TileProblem& p, const GemmTile& t) {
  return p.grouped ? 2 * p.rows <= p.groups * t.tokens : p.rows <= t.tokens;
}

std::int64_t steps_of(const TileProblem& p, const GemmTile& t) {
  const std::int64_t chunks = ceil_div(p.k, kTileCols);
  return is_strips(t) ? ceil_div(chunks, box_chunks(t, box_rows(t, p.rows)))
                      : ceil_div(ceil_div(chunks, stage_chunks(t)), t.splits);
}

namespace {
/// Where its blocks leave room on every multiprocessor, those of the next kernel fill theirs in the
/// time of the last steps.
int estimated_next(const TileProblem& p, const GemmTile& t) {
  const std::int64_t last_steps = is_strips(t) ? 8 : 5;
  if (p.grouped || !leaves_room(t) || block_count(p, t) > p.multiprocessors) return 0;
  return static_cast<int>(std::max<std::int64_t>(0, steps_of(p, t) - t.help - last_steps));
}
}  // namespace

GemmTile estimate_tile(const TileProblem& given) {
  TileProblem p = given;
  p.multiprocessors = std::max(1, p.multiprocessors);
  if (p.routed) {
    GemmTile best{1, kRoutedRows[0], 1};
    for (const int rows : kRoutedRows)
      if (routed_time(p, {1, rows, 1}) < routed_time(p, best)) best = {1, rows, 1};
    return best;
  }
  const bool fills = fills_multiprocessors(p);
  GemmTile best;
  double least = 0;
  for (const int tokens : kTileTokens)
    for (const int rows : kRows)
      for (const int splits : kSplits) {
        GemmTile t{tokens, rows, splits};
        if (!is_sensible(p, t)) continue;
        t.help = estimated_help(p, t);
        const double time = time_of(p, fills, t);
        if (best.tokens != 0 && time >= least) continue;
        best = t;
        least = time;
      }
  best.next = estimated_next(p, best);
  return best;
}

namespace {
/// SwiGLU has the sums of the same product without it: a tile of 32 rows adds as one of 16 does.
GemmTile swiglu_tile(const TileProblem& p, GemmTile tile) {
  if (tile.rows != 16) return tile;
  const std::int64_t steps = steps_of(p, tile);
  tile.rows = 32;
  tile.next = static_cast<int>(tile.next * steps_of(p, tile) / steps);
  return tile;
}
}  // namespace

/// What an estimate must promise to be believed: of the time of a measured tile, and of one
/// product.
constexpr double kBetterThanMeasured = 0.9, kWorthwhile = 0.95;
constexpr std::int64_t kAlwaysMeasured = 128;  ///< rows up to which the table decides

GemmTile choose_tile(const TileProblem& given) {
  if (given.swiglu) {
    TileProblem plain = given;
    plain.swiglu = plain.helped = false;
    return swiglu_tile(plain, choose_tile(plain));
  }
  const TileProblem& p = given;
  if (p.routed) return estimate_tile(p);
  if (p.groups != 1 || p.multiprocessors != kMeasuredMultiprocessors) return estimate_tile(p);
  const MeasuredTile* found = nullptr;
  for (const MeasuredTile& m : measured_tiles())
    if (m.n == p.n && m.k == p.k && (found == nullptr || found->rows < p.rows)) found = &m;
  if (found == nullptr) return estimate_tile(p);
  const GemmTile& tile = can_help(p, found->helped) ? found->helped : found->tile;
  if (!is_sensible(p, tile)) return estimate_tile(p);
  if (p.rows <= kAlwaysMeasured || p.rows == found->rows) return tile;
  // Between the rows of the table, the last tiles and the last round may be filled badly.
  const GemmTile estimate = estimate_tile(p);
  const double measured = estimated_time(p, tile);
  return estimated_time(p, estimate) < kBetterThanMeasured * measured ? estimate : tile;
}

std::array<TilePart, 2> choose_parts(const TileProblem& p) {
  if (p.swiglu) {
    TileProblem plain = p;
    plain.swiglu = plain.helped = false;
    std::array<TilePart, 2> parts = choose_parts(plain);
    for (TilePart& part : parts) {
      plain.rows = part.rows;
      part.tile = swiglu_tile(plain, part.tile);
    }
    return parts;
  }
  const GemmTile tile = choose_tile(p);
  std::array<TilePart, 2> best = {{{p.rows, tile}, {}}};
  if (p.grouped || p.groups != 1) return best;
  double least = kWorthwhile * estimated_time(p, tile);
  for (const GemmTile& large : {GemmTile{128, 128, 1}, GemmTile{160, 128, 1}, GemmTile{192, 128, 1},
                                GemmTile{256, 128, 1}, GemmTile{256, 64, 1}}) {
    const std::int64_t at_once = std::max(1, p.multiprocessors) * blocks_per_multiprocessor(large);
    const std::int64_t across = row_tiles(p, large);
    const std::int64_t rounds = ceil_div(across * ceil_div(p.rows, large.tokens), at_once);
    TileProblem first = p, rest = p;
    first.rows = (rounds - 1) * at_once / across * large.tokens;
    if (first.rows <= 0 || first.rows >= p.rows) continue;
    rest.rows = p.rows - first.rows;
    const GemmTile rest_tile = choose_tile(rest);
    const double time =
        estimated_time(first, large) + estimated_time(rest, rest_tile) + kCost.second_product;
    if (time >= least) continue;
    least = time;
    best = {{{first.rows, large}, {rest.rows, rest_tile}}};
  }
  return best;
}

std::int64_t block_count(const TileProblem& p, const GemmTile& t) {
  const std::int64_t tiles = row_tiles(p, t) * most_token_tiles(p, t) * t.splits;
  if (is_one_tile(t)) return tiles;
  const std::int64_t at_once =
      std::max<std::int64_t>(1, p.multiprocessors * blocks_per_multiprocessor(t));
  return std::min(tiles, at_once);
}

}  // namespace nvfp4::cuda
