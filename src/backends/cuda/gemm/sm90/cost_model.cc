#include "backends/cuda/gemm/sm90/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/plan.h"
#include "backends/moe_job.h"
#include "nvfp4/layout.h"

namespace nvfp4::cuda {
namespace {

/// Measured on an H200: bytes of weights per microsecond, and the share of stream-K steps' time
/// that is saved.
constexpr double kBytes = 3.785e6, kStreamKGain = 0.7;
constexpr double kSecondProduct = 3;  ///< microseconds: launch, and waiting for the first GEMM

/// Clusters of several blocks leave some multiprocessors idle, because a cluster does not span
/// GPCs.
std::int64_t usable_multiprocessors(const KernelProblem& p, int splits) {
  const int left = splits <= 2 ? 0 : splits == 4 ? p.multiprocessors / 16 : p.multiprocessors / 8;
  return std::max(1, p.multiprocessors - left);
}

std::int64_t n_tiles(const KernelProblem& p, const KernelConfig& t) { return ceil_div(p.n, t.n); }

/// Calls f(rows, chance) for the likely numbers of rows of a group. Rows are distributed at random:
/// Poisson, or normal where the mean is large. For large means one call stands for several
/// neighboring numbers.
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

/// Returns the expected cost of one group's tiles, averaged over likely group sizes. cost(rows) is
/// the cost of a tile that multiplies that many rows.
template <class TileCost>
double expected_cost(const KernelProblem& p, const KernelConfig& t, const TileCost& cost) {
  double sum = 0;
  const double mean = static_cast<double>(p.m) / static_cast<double>(p.groups);
  for_each_group_size(mean, [&](std::int64_t rows, double chance) {
    const std::int64_t tiles = ceil_div(rows, t.m);
    const auto width = static_cast<std::int64_t>(
        m_shapes(t).rows_of_tile(static_cast<int>(std::min(rows, p.m)), static_cast<int>(tiles)));
    const auto left = static_cast<int>(rows - (tiles - 1) * width);
    sum += chance * (static_cast<double>(tiles - 1) * cost(static_cast<int>(width)) +
                     cost(m_shapes(t).enough_for(left)));
  });
  return sum;
}

/// Returns the expected number of tiles along M. most_m_tiles() is the maximum.
double expected_group_tiles(const KernelProblem& p, const KernelConfig& t) {
  return expected_cost(p, t, [](int) { return 1.0; }) * static_cast<double>(p.groups);
}
std::int64_t expected_m_tiles(const KernelProblem& p, const KernelConfig& t) {
  if (!p.grouped) return p.groups * ceil_div(p.m, t.m);
  return std::max<std::int64_t>(1, std::llround(expected_group_tiles(p, t)));
}
std::int64_t most_m_tiles(const KernelProblem& p, const KernelConfig& t) {
  if (!p.grouped) return p.groups * ceil_div(p.m, t.m);
  // The maximum: one row in every group, and each further tile is full.
  const std::int64_t busy = std::min(p.groups, p.m);
  return busy + (p.m - busy) / t.m;
}

}  // namespace

bool is_sensible(const KernelProblem& p, const KernelConfig& t) {
  return is_kernel(t) && is_possible(p, t) && (!p.batch_invariant || is_batch_invariant(t)) &&
         (t.m <= 16 || t.m < 2 * p.m) && (t.m != kPerWarpXM || p.m <= p.groups * kPerWarpXM);
}

namespace {
/// Reports whether the groups have enough tiles for every multiprocessor. Then tiles of 128 or 192
/// rows are fastest; a block takes several in turn.
bool fills_multiprocessors(const KernelProblem& p) {
  const KernelConfig smallest{8, 128, 1};
  return p.grouped && p.m > 0 &&
         static_cast<double>(n_tiles(p, smallest)) * expected_group_tiles(p, smallest) >=
             static_cast<double>(p.multiprocessors);
}
/// Returns the time in microseconds of a problem that fills the multiprocessors. A chunk costs a
/// constant for 64 rows, and a part for each copied and for each multiplied token. Fitted to 256
/// experts on an H200 with 512 to 8192 tokens; the error is 5 %.
double filled_time(const KernelProblem& p, const KernelConfig& t) {
  if (t.n < 128 || t.split_k != 1 || is_small_m(t)) return std::numeric_limits<double>::infinity();
  constexpr double kRowsOf64 = 0.0600, kCopied = 0.000631, kMultiplied = 0.000924;
  const auto chunk = [&](int tokens) {
    return kCopied * t.m + n_groups(t) * (kRowsOf64 + kMultiplied * tokens);
  };
  return expected_cost(p, t, chunk) *
         static_cast<double>(p.groups * n_tiles(p, t) * ceil_div(p.k, kTileCols)) /
         static_cast<double>(p.multiprocessors);
}

const KernelCost& cost_of(const KernelConfig& t) {
  return sm90_kernel(t)->costs[std::countr_zero(static_cast<unsigned>(t.split_k))];
}

/// Returns the time in microseconds of rows with weights of their own: the start of a block, and
/// dequantization of chunks. One or two blocks share a multiprocessor.
double routed_time(const KernelProblem& p, const KernelConfig& t) {
  constexpr double kStart = 2.5, kBlock = 2.0, kChunk = 0.0145;
  const std::int64_t chunks = ceil_div(ceil_div(p.k, kTileCols), small_m_k_parts(t));
  const std::int64_t blocks = block_count(p, t);
  const std::int64_t processors = usable_multiprocessors(p, 1);
  const auto waves = static_cast<double>(ceil_div(blocks, 2 * processors));
  const auto at_once = static_cast<double>(std::min<std::int64_t>(2, ceil_div(blocks, processors)));
  const double warps = t.n / 16.0 * small_m_k_parts(t);
  const double bytes = static_cast<double>(p.groups * ceil_div(p.n, kTileRows) *
                                           ceil_div(p.k, kTileCols) * kTileBytes);
  return kStart +
         std::max(bytes / kBytes, waves * at_once * warps * static_cast<double>(chunks) * kChunk) +
         waves * kBlock;
}

}  // namespace

std::int64_t stream_k_block_count(const KernelProblem& p, const KernelConfig& t) {
  if (t.stream_k_steps == 0) return 0;
  const std::int64_t blocks = block_count(p, t);
  const std::int64_t at_once = usable_multiprocessors(p, t.split_k) * blocks_per_multiprocessor(t);
  return std::clamp<std::int64_t>(at_once - blocks, 0, blocks) / t.split_k * t.split_k;
}

bool can_stream_k(const KernelProblem& p, const KernelConfig& t) {
  if (!p.stream_k || !has_stream_k(t) || p.groups != 1 || p.grouped || p.routed || p.swiglu ||
      p.batch_invariant)
    return false;
  // Slices are whole steps, and each block keeps at least one step.
  const std::int64_t chunks = ceil_div(p.k, kTileCols);
  const std::int64_t slices = block_count(p, t), stream_k_blocks = stream_k_block_count(p, t);
  return chunks % stage_chunks(t) == 0 && t.stream_k_steps < chunks / stage_chunks(t) / t.split_k &&
         slices <= kMostStreamKTiles && slices * stream_k_sum_bytes(t) <= kStreamKSumBytes &&
         stream_k_blocks > 0 && slices <= kMostTilesOfStreamKBlock * stream_k_blocks;
}

bool is_possible(const KernelProblem& p, const KernelConfig& t) {
  // A warp copies whole chunks of x. 16 outputs of SwiGLU are quantized together and take 32 rows
  // of gate and up.
  return (t.m != kPerWarpXM || p.k % kTileCols == 0) && (!p.swiglu || t.n >= 32) &&
         p.routed == is_routed(t) && (!p.routed || p.k <= kMostRoutedDepth) &&
         (t.stream_k_steps == 0 || can_stream_k(p, t));
}

std::string why_impossible(const KernelProblem& p, const KernelConfig& t) {
  if (is_possible(p, t)) {
    if (!p.batch_invariant || is_batch_invariant(t)) return "";
    return "is not batch-invariant: its order of summation depends on the number of rows";
  }
  if (p.routed != is_routed(t))
    return p.routed ? "is not for routed GEMMs" : "is for routed GEMMs only";
  if (p.routed) return fmt::format("is for K of at most {}, not {}", kMostRoutedDepth, p.k);
  if (p.swiglu && t.n < 32) return "is not for SwiGLU: it needs tiles of n = 32 and more";
  if (t.m == kPerWarpXM && p.k % kTileCols != 0)
    return fmt::format("is for K that is a multiple of {}, not {}", kTileCols, p.k);
  return fmt::format(
      "is not for N = {}, K = {} and {} multiprocessors: stream-K needs whole stages, of which "
      "every "
      "block keeps some, and room for more blocks than there are tiles",
      p.n, p.k, p.multiprocessors);
}

namespace {
/// Estimates the stream-K steps. A stream-K block takes several slices and one further step for
/// each. They take as long as the remaining steps of other blocks. Slices of few steps are not
/// worth it.
int estimated_stream_k_steps(const KernelProblem& p, KernelConfig t) {
  constexpr std::int64_t kWorthwhileStreamKSteps = 4;
  t.stream_k_steps = 1;
  if (!can_stream_k(p, t)) return 0;
  const std::int64_t slices = ceil_div(block_count(p, t), stream_k_block_count(p, t));
  const std::int64_t steps = (steps_of(p, t) - slices) / (slices + 1);
  return slices > 1 && steps >= kWorthwhileStreamKSteps ? static_cast<int>(steps) : 0;
}

/// Returns the stages of a block, with a fraction for the last one. Costs refer to the variant that
/// has a multiprocessor to itself, if there are two.
double stages_of(const KernelProblem& p, KernelConfig t) {
  t.launch_dependents_step = 0;
  const std::int64_t chunks = ceil_div(p.k, kTileCols);
  if (is_small_m(t)) return static_cast<double>(ceil_div(chunks, small_m_k_parts(t))) / 2;
  return static_cast<double>(chunks) / stage_chunks(t) / t.split_k;
}

/// Returns the rounds of blocks on `processors` multiprocessors. A last round of second blocks
/// takes less time the fewer there are, because those that have none leave bandwidth to the others.
double rounds_of(std::int64_t blocks, std::int64_t processors, int at_once) {
  constexpr double kFull = 0.35;  // the share of such a round's time that does not fall
  const std::int64_t rounds = ceil_div(blocks, processors);
  const double exact = static_cast<double>(blocks) / static_cast<double>(processors);
  return at_once == 1 || rounds % 2 == 1
             ? static_cast<double>(rounds)
             : kFull * static_cast<double>(rounds) + (1 - kFull) * exact;
}

/// Returns the modelled time of a kernel's tiles: rounds of blocks, their stages, bytes and waves.
double tiles_time(const KernelProblem& p, const KernelConfig& t) {
  const KernelCost& cost = cost_of(t);
  const std::int64_t blocks = n_tiles(p, t) * expected_m_tiles(p, t) * t.split_k;
  const std::int64_t processors = usable_multiprocessors(p, t.split_k);
  const double rounds = rounds_of(blocks, processors, blocks_per_multiprocessor(t));
  const auto waves =
      static_cast<double>(ceil_div(blocks, processors * blocks_per_multiprocessor(t)));
  const double stages = stages_of(p, t);
  const double kept = 1 - kStreamKGain * t.stream_k_steps / std::max(1.0, stages);
  const std::int64_t groups = p.grouped ? std::min(p.groups, p.m) : p.groups;
  const double megabytes = static_cast<double>(groups * ceil_div(p.n, kTileRows) *
                                               ceil_div(p.k, kTileCols) * kTileBytes) *
                           1e-6;
  return cost.start + rounds * (cost.round + stages * kept * cost.step) +
         megabytes * cost.megabyte + (waves - 1) * cost.wave;
}

double time_of(const KernelProblem& p, bool fills, const KernelConfig& t) {
  if (fills) return filled_time(p, t);
  return is_routed(t) ? routed_time(p, t) : tiles_time(p, t);
}
}  // namespace

double estimated_time(const KernelProblem& p, const KernelConfig& t) {
  return time_of(p, fills_multiprocessors(p), t);
}

bool reads_weights_once(const KernelProblem& p, const KernelConfig& t) {
  return p.grouped ? 2 * p.m <= p.groups * t.m : p.m <= t.m;
}

std::int64_t steps_of(const KernelProblem& p, const KernelConfig& t) {
  const std::int64_t chunks = ceil_div(p.k, kTileCols);
  return is_small_m(t) ? ceil_div(chunks, box_chunks(t, box_rows(t, p.m)))
                       : ceil_div(ceil_div(chunks, stage_chunks(t)), t.split_k);
}

namespace {
/// Up to this K the next kernel may start early even if two blocks share a multiprocessor.
constexpr std::int64_t kSmallK = 2048;
/// Up to this M the weights limit the time.
constexpr std::int64_t kFewRows = 64;
/// Up to this number of steps the next kernel cannot start usefully early.
constexpr std::int64_t kFewSteps = 5;

/// Returns the thread blocks of one GEMM, if each has one tile.
std::int64_t tile_count(const KernelProblem& p, const KernelConfig& t) {
  return n_tiles(p, t) * most_m_tiles(p, t) * t.split_k;
}

/// Returns the step at which the next kernel may start, from which it fills its stages: as late as
/// possible, but a small-M kernel starts more slowly.
int estimated_launch_dependents_step(const KernelProblem& p, const KernelConfig& t) {
  KernelConfig early = t;
  early.launch_dependents_step = 1;
  if (p.grouped || p.routed || !leaves_room(early)) return 0;
  const std::int64_t tiles = tile_count(p, t), steps = steps_of(p, early);
  const bool fits_twice = p.groups == 1 && tiles <= 2 * p.multiprocessors;
  std::int64_t last_steps = is_small_m(t) ? 8 : 2;
  if (!leaves_room(t)) {  // it leaves room for a second block only if it lets the next kernel start
    if (tiles <= p.multiprocessors || !fits_twice || p.m > kFewRows) return 0;
    return static_cast<int>(std::max<std::int64_t>(1, steps - kFewSteps));
  }
  if (tiles > p.multiprocessors) {
    if (is_small_m(t) || !fits_twice || p.k > kSmallK) return 0;
    last_steps = 4;
  } else if (!is_small_m(t) && steps <= kFewSteps) {
    return 0;
  }
  return static_cast<int>(std::max<std::int64_t>(0, steps - t.stream_k_steps - last_steps));
}

/// Returns the stages that a kernel loads before the previous one ends. More would take bandwidth
/// from it, unless it lets this one start late. Blocks with several tiles gain from all.
int estimated_prefetch_stages(const KernelProblem& p, const KernelConfig& t) {
  if (p.groups != 1 || p.grouped || !has_mainloop(t, MainloopKind::wgmma)) return kAllStages;
  const bool one_each = tile_count(p, t) <= p.multiprocessors;
  if (p.m <= 2 * kFewRows && p.k <= kSmallK) return 2;
  if (p.m > kFewRows || (one_each && t.launch_dependents_step > 0)) return kAllStages;
  return t.m <= 32 || one_each ? 2 : kAllStages;
}
}  // namespace

KernelConfig with_estimates(const KernelProblem& p, KernelConfig kernel) {
  kernel.stream_k_steps = estimated_stream_k_steps(p, kernel);
  kernel.launch_dependents_step = estimated_launch_dependents_step(p, kernel);
  kernel.prefetch_stages = estimated_prefetch_stages(p, kernel);
  return kernel;
}

namespace {
/// Returns the routed kernel with the least estimated time.
KernelConfig choose_routed(const KernelProblem& p) {
  KernelConfig best;
  for (const Kernel& k : kSm90Kernels) {
    const KernelConfig t{k.m, k.n};
    if (k.mainloop == MainloopKind::routed &&
        (best.m == 0 || routed_time(p, t) < routed_time(p, best)))
      best = t;
  }
  return best;
}

/// SwiGLU uses the sums of the same GEMM without it. A tile of 32 rows sums in the same order as
/// one of 16.
KernelConfig swiglu_kernel(const KernelProblem& p, KernelConfig tile) {
  if (tile.n != 16) return tile;
  const std::int64_t steps = steps_of(p, tile);
  tile.n = 32;
  tile.launch_dependents_step =
      static_cast<int>(tile.launch_dependents_step * steps_of(p, tile) / steps);
  return tile;
}

/// Returns the same GEMM without SwiGLU.
KernelProblem without_swiglu(KernelProblem p) {
  p.swiglu = p.stream_k = false;
  return p;
}
}  // namespace

KernelConfig choose_kernel(const KernelProblem& given) {
  if (given.swiglu) {
    const KernelProblem plain = without_swiglu(given);
    return swiglu_kernel(plain, choose_kernel(plain));
  }
  KernelProblem p = given;
  p.multiprocessors = std::max(1, p.multiprocessors);
  if (p.routed) return choose_routed(p);
  const bool fills = fills_multiprocessors(p);
  KernelConfig best;
  double least = 0;
  for (KernelConfig t : kernel_configs(kSm90Kernels)) {
    if (!is_sensible(p, t)) continue;
    t.stream_k_steps = estimated_stream_k_steps(p, t);
    const double time = time_of(p, fills, t);
    if (best.m != 0 && time >= least) continue;
    best = t;
    least = time;
  }
  return with_estimates(p, best);
}

std::array<PlanPart, 2> choose_kernels(const KernelProblem& p) {
  if (p.swiglu) {
    KernelProblem plain = without_swiglu(p);
    std::array<PlanPart, 2> parts = choose_kernels(plain);
    for (PlanPart& part : parts) {
      plain.m = part.rows;
      part.kernel = swiglu_kernel(plain, part.kernel);
    }
    return parts;
  }
  const KernelConfig tile = choose_kernel(p);
  std::array<PlanPart, 2> best = {{{p.m, tile}, {}}};
  if (p.grouped || p.groups != 1) return best;
  constexpr double kWorthwhile = 0.95;  // two GEMMs replace one below this share of its time
  double least = kWorthwhile * estimated_time(p, tile);
  for (const KernelConfig& large :
       {KernelConfig{128, 128, 1}, KernelConfig{160, 128, 1}, KernelConfig{192, 128, 1},
        KernelConfig{256, 128, 1}, KernelConfig{256, 64, 1}}) {
    const std::int64_t at_once = std::max(1, p.multiprocessors) * blocks_per_multiprocessor(large);
    const std::int64_t across = n_tiles(p, large);
    const std::int64_t rounds = ceil_div(across * ceil_div(p.m, large.m), at_once);
    KernelProblem first = p, rest = p;
    first.m = (rounds - 1) * at_once / across * large.m;
    if (first.m <= 0 || first.m >= p.m) continue;
    rest.m = p.m - first.m;
    const KernelConfig rest_tile = choose_kernel(rest);
    const double time =
        estimated_time(first, large) + estimated_time(rest, rest_tile) + kSecondProduct;
    if (time >= least) continue;
    least = time;
    best = {{{first.m, large}, {rest.m, rest_tile}}};
  }
  return best;
}

std::int64_t block_count(const KernelProblem& p, const KernelConfig& t) {
  const std::int64_t tiles = n_tiles(p, t) * most_m_tiles(p, t) * t.split_k;
  if (is_single_tile(t)) return tiles;
  const std::int64_t at_once =
      std::max<std::int64_t>(1, p.multiprocessors * blocks_per_multiprocessor(t));
  return std::min(tiles, at_once);
}

}  // namespace nvfp4::cuda
