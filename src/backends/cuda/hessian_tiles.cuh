#pragma once

#include "backends/cuda/device/difference.cuh"
#include "backends/cuda/hessian_bounds.cuh"
#include "backends/cuda/ptx/mma.cuh"

/// Searches 32 blocks of 16 with a warp. Tensor cores compute lower bounds of the costs of sixteen
/// candidates. Exact costs are computed only for candidates that may be the best. Device code only.
namespace nvfp4::cuda {

inline constexpr int kCandidates = 16;  ///< two octaves; the second has half the scales
inline constexpr int kPool = 64;

/// The shared memory of a warp. Lane i owns block i.
struct Tiles {
  alignas(16) float x[32][20];  // padded against bank conflicts of eight rows
  BlockGlobal globals[32];
  float bounds[kCandidates][32];
  float4 scales[32];
  std::uint16_t pairs[kPool];  ///< owner and candidate of costs to compute
  float costs[kPool];
};

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) % 32; }

/// Adds up four sums over a quad; each lane has a part of each. Lane t gets sum t.
__device__ inline float quad_sum(const float (&part)[4]) {
  const bool high = (threadIdx.x & 2) != 0, odd = (threadIdx.x & 1) != 0;
  float keep[2];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    keep[i] =
        (high ? part[2 + i] : part[i]) + __shfl_xor_sync(~0u, high ? part[i] : part[2 + i], 2);
  return (odd ? keep[1] : keep[0]) + __shfl_xor_sync(~0u, odd ? keep[0] : keep[1], 1);
}

/// The lowered H as the B operand, see lower_bound().
struct LoweredHessian {
  float b[2][2][2];  ///< step along K, columns 8n + …, pair

  __device__ explicit LoweredHessian(const SharedHessian<16>& s) {
    const int t = lane_id() % 4, g = lane_id() / 4;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      b[i / 4][i / 2 % 2][i % 2] = s.lowered[2 * t + 8 * (i / 4) + i % 2][i / 2 % 2 * 8 + g];
  }
};

/// Returns the bound of the lane's own block. A quad has the differences of its four blocks: lane t
/// has elements 2t, 2t + 1, 2t + 8 and 2t + 9 of each. Step k of the GEMM takes 2t + 8k as column t
/// and the next element as column t + 4. So H r has the layout of r.
__device__ inline float lower_bound(const LoweredHessian& h, const float (&r)[4][4]) {
  float part[4];
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    const float(&above)[4] = r[2 * tile];
    const float(&below)[4] = r[2 * tile + 1];
    float y[2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        ptx::mma_m16n8k8_tf32(y[n], above[2 * k], below[2 * k], above[2 * k + 1], below[2 * k + 1],
                              h.b[k][n]);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float(&d)[4] = row == 0 ? above : below;
      float sum = y[0][2 * row] * d[0];
      sum = __fmaf_rn(y[0][2 * row + 1], d[1], sum);
      sum = __fmaf_rn(y[1][2 * row], d[2], sum);
      part[2 * tile + row] = __fmaf_rn(y[1][2 * row + 1], d[3], sum);
    }
  }
  return quad_sum(part);
}

struct Lowest {
  float bound;
  int slot;
};

/// Computes tiles.bounds of codes `high` … `high` - 15 of each lane's own block. Codes outside 8 …
/// 126 get INFINITY. kClips: 6.99 c may be below the largest |u|. Results for blocks that are not
/// searched are meaningless.
template <bool kClips>
__device__ inline Lowest measure(const LoweredHessian& h, Tiles& tiles, int high) {
  const int lane = lane_id(), quad = lane / 4 * 4, t = lane % 4;
  const float inverse = tiles.globals[lane].inverse;
  const float square = tiles.globals[lane].divisor * tiles.globals[lane].divisor;
  float x[4][4];
#pragma unroll
  for (int b = 0; b < 4; ++b)
#pragma unroll
    for (int j = 0; j < 4; ++j) x[b][j] = tiles.x[quad + b][2 * t + j / 2 * 8 + j % 2];
  Lowest lowest{INFINITY, 0};
#pragma unroll 1
  for (int pair = 0; pair < 8; pair += 2) {  // two adjacent scales and their halves
    const float c0 = e4m3_value(high - pair) * inverse;
    const float c1 = e4m3_value(high - pair - 1) * inverse;
    __syncwarp();
    tiles.scales[lane] = {c0, ordinary_reciprocal(c0), c1, ordinary_reciprocal(c1)};
    __syncwarp();
    float4 scales[4];
    float grid[4][4];
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      scales[b] = tiles.scales[quad + b];
      // A scale between the two, whose ratio is at least 8/9: one binade serves both.
      const float between = scales[b].w * (0.95f * 0x1p22f);
#pragma unroll
      for (int j = 0; j < 4; ++j) grid[b][j] = on_grid(x[b][j] * between);
    }
#pragma unroll
    for (int octave = 0; octave < 2; ++octave) {
      const float unit = octave == 0 ? 1.0f : 0.5f;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float r[4][4];
#pragma unroll
        for (int b = 0; b < 4; ++b)
#pragma unroll
          for (int j = 0; j < 4; ++j)
            r[b][j] = rough_difference<kClips>(x[b][j], i == 0 ? scales[b].x : scales[b].z,
                                               i == 0 ? scales[b].y : scales[b].w,
                                               fmaxf(grid[b][j], unit * kOnGrid), unit * 6.0f);
        const int slot = 8 * octave + pair + i, code = high - slot;
        const float l = lower_bound(h, r) * square;
        const float bound = code >= 8 && code <= 126 ? l : INFINITY;
        tiles.bounds[slot][lane] = bound;
        if (bound < lowest.bound) lowest = {bound, slot};
      }
    }
  }
  return lowest;
}

/// The state of a lane's search.
struct Search {
  BestScale best;          ///< best exact cost
  float limit = INFINITY;  ///< an upper bound of the smallest cost, plus `error`
  float error = 0;         ///< largest error of a bound
  float amax = 0;
  float clip = 0;  ///< a cost is at least clip · (amax - 6c)², if c clips

  /// Reports whether a code clips too much. Every lower code then does so, too.
  __device__ bool clips_too_much(int code) const {
    const float clipped = fmaxf(amax - 6.0f * e4m3_value(code), 0.0f);
    return clip > 0 && clip * (clipped * clipped) > limit;
  }
};

/// Returns the code of a candidate bit: bits 0 … 23 are codes `high` … `high` - 23. Bits 24 … 31
/// are codes `high` + 8 down to `high` + 1.
__device__ inline int code_at(int high, int bit) { return high - bit + (bit < 24 ? 0 : 32); }

/// Computes the exact costs of the candidates in `left`, distributed over the lanes. If there are
/// too many, each lane submits one at a time. Candidates below kCandidates are then dropped if
/// their bounds exceed the best cost. Returns the candidates from bit 24 on whose multiples remain
/// possible.
__device__ inline std::uint32_t weigh(const SharedHessian<16>& s, Tiles& tiles, Search& search,
                                      std::uint32_t left, int high) {
  const int lane = lane_id();
  std::uint32_t alive = 0;
  while (true) {
    int end = __popc(left);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, end, step);
      if (lane >= step) end += other;
    }
    int total = __shfl_sync(~0u, end, 31);
    if (total == 0) return alive;
    std::uint32_t mine = left;
    const bool all = total <= kPool;
    if (!all) {
      mine = left & (0u - left);
      const std::uint32_t lanes = __ballot_sync(~0u, mine != 0);
      end = __popc(lanes & (0xFFFFFFFFu >> (31 - lane)));
      total = __popc(lanes);
    }
    left ^= mine;
    int at = end - __popc(mine);
    for (std::uint32_t m = mine; m != 0; m &= m - 1)
      tiles.pairs[at++] =
          static_cast<std::uint16_t>(code_at(high, __ffs(static_cast<int>(m)) - 1) << 5 | lane);
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < total; i += 32)
      tiles.costs[i] = cost(s, tiles.x[tiles.pairs[i] % 32], tiles.globals[tiles.pairs[i] % 32],
                            e4m3_value(tiles.pairs[i] / 32));
    __syncwarp();
    at = end - __popc(mine);
    for (std::uint32_t m = mine; m != 0; m &= m - 1) {
      const int bit = __ffs(static_cast<int>(m)) - 1;
      const float c = tiles.costs[at++];
      search.best.offer(c, static_cast<std::uint32_t>(code_at(high, bit)));
      if (bit >= 24 && c <= s.limit_at_half(search.limit)) alive |= 1u << bit;
    }
    if (all) return alive;
    for (std::uint32_t m = left & ((1u << kCandidates) - 1); m != 0; m &= m - 1) {
      const int slot = __ffs(static_cast<int>(m)) - 1;
      if (tiles.bounds[slot][lane] > search.best.cost + search.error) left ^= 1u << slot;
    }
  }
}

/// Returns those of the first kSlots candidates whose bounds are at most `limit`.
template <int kSlots>
__device__ inline std::uint32_t allowed(const Tiles& tiles, float limit) {
  std::uint32_t allowed = 0;
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot)
    if (tiles.bounds[slot][lane_id()] <= limit) allowed |= 1u << slot;
  return allowed;
}

/// Returns the doubles of the first eight scales, in the next octave, that the bounds allow.
__device__ inline std::uint32_t allowed_doubles(const SharedHessian<16>& s, const Tiles& tiles,
                                                float limit, int high) {
  const std::uint32_t codes = 0xFF000000u << max(high + 8 - 126, 0);  // none above 126
  return high < 126 ? allowed<8>(tiles, s.limit_at_half(limit)) << 24 & codes : 0;
}

__device__ __noinline__ float cost_apart(const SharedHessian<16>& s, const float* x,
                                         const BlockGlobal& global, int code) {
  return cost(s, x, global, e4m3_value(code));
}

/// Tries all 126 scales, for blocks and matrices without bounds. `largest` is the maximum of |x|.
__device__ __noinline__ std::uint32_t search_all(const SharedHessian<16>& s, const float* x,
                                                 const BlockGlobal& global, float largest) {
  BestScale best{cost_apart(s, x, global, 1), 1};  // stays if it is NaN, as in cheapest_scale()
  // Once every element rounds to zero, larger scales have the same cost.
  for (int code = 2; code <= 126 && largest * global.factor(e4m3_value(code - 1)) > 0.25f; ++code)
    best.offer(cost_apart(s, x, global, code), static_cast<std::uint32_t>(code));
  return best.code;
}

__device__ __noinline__ Lowest measure_clipping(const SharedHessian<16>& s, Tiles& tiles,
                                                int high) {
  return measure<true>(LoweredHessian(s), tiles, high);
}

__device__ __noinline__ void weigh_apart(const SharedHessian<16>& s, Tiles& tiles, Search& search,
                                         std::uint32_t left, int high) {
  weigh(s, tiles, search, left, high);
  search.limit = search.best.cost + search.error;
}

/// Same as Search::clips_too_much(), with all clipped elements.
__device__ inline bool clip_too_much(const SharedHessian<16>& s, const float* x,
                                     const BlockGlobal& global, float limit, int code) {
  float sum = 0;
  for (int i = 0; i < 16; ++i) {
    const float clipped = fmaxf(fabsf(global.cost_value(x[i])) - 6.0f * e4m3_value(code), 0.0f);
    sum = __fmaf_rn(s.h[i][i] * clipped, clipped, sum);
  }
  return s.floor > 0 && s.floor * sum > limit;
}

/// Searches when the bounds exclude little. All lanes measure two octaves at a time, upwards and
/// downwards, until no lane needs more.
__device__ __noinline__ std::uint32_t search_widely(const SharedHessian<16>& s, Tiles& tiles,
                                                    Search search, bool searched, int top,
                                                    int start) {
  const std::uint32_t first = 1u << start;
  int high = top + 7;
  weigh_apart(s, tiles, search, searched ? first : 0, high);
  weigh_apart(s, tiles, search, searched ? allowed<kCandidates>(tiles, search.limit) & ~first : 0,
              high);
  bool alive = searched;
  for (; high < top + 39; high += 16) {
    alive = alive && allowed_doubles(s, tiles, search.limit, high) != 0;
    if (!__any_sync(~0u, alive)) break;
    measure_clipping(s, tiles, high + 16);
    weigh_apart(s, tiles, search, alive ? allowed<kCandidates>(tiles, search.limit) : 0, high + 16);
  }
  const float* own = tiles.x[lane_id()];
  const BlockGlobal& global = tiles.globals[lane_id()];
  const auto below = [&](int code) {
    return searched && !search.clips_too_much(code) &&
           !clip_too_much(s, own, global, search.limit, code);
  };
  for (high = top - 9;; high -= 16) {
    alive = high >= 8 && below(high);
    if (!__any_sync(~0u, alive)) break;
    measure_clipping(s, tiles, high);
    weigh_apart(s, tiles, search, alive ? allowed<kCandidates>(tiles, search.limit) : 0, high);
  }
  for (int code = 7; code >= 1 && below(code); --code)
    search.best.offer(cost_apart(s, own, global, code), static_cast<std::uint32_t>(code));
  return search.best.code;
}

/// Returns the scales of 32 blocks; each lane has one.
__device__ inline std::uint32_t search_tiles(const SharedHessian<16>& s, const LoweredHessian& h,
                                             Tiles& tiles, const float (&x)[16], float divisor) {
  Search search;
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) largest = fmaxf(largest, fabsf(x[i]));
#pragma unroll
  for (int i = 0; i < 16; ++i)
    if (fabsf(x[i]) == largest) search.clip = fmaxf(search.clip, s.clip[i]);
  // Powers of two of the divisor are moved to x, if that is exact, so that bounds are close to
  // costs.
  const float power = __uint_as_float(__float_as_uint(divisor) & 0x7F800000u);
  bool exact = divisor >= 0x1p-60f && divisor <= 0x1p60f;
  if (divisor < 1) {
#pragma unroll
    for (int i = 0; i < 16; ++i) exact = exact && x[i] * power * (1.0f / power) == x[i];
  }
  const float factor = exact ? power : 1.0f;
  float(&own)[20] = tiles.x[lane_id()];
  BlockGlobal& global = tiles.globals[lane_id()];
  __syncwarp();  // other lanes may still read the previous contents
  global = BlockGlobal(divisor / factor);
#pragma unroll
  for (int i = 0; i < 16; i += 4)
    *reinterpret_cast<float4*>(own + i) = {x[i] * factor, x[i + 1] * factor, x[i + 2] * factor,
                                           x[i + 3] * factor};
  __syncwarp();
  largest *= factor;
  const float amax = search.amax = global.cost_value(largest);
  search.error = __fmaf_rn(s.rough * amax, amax, s.slack);
  // The lowest code with 3.5 c >= amax, or 126. The margin covers the rounding of x · factor: 7 c
  // of half the code must not be reached.
  const float most = amax * (1.0f + 0x1p-20f);
  int top = min(126, int{e4m3_bits(fminf(most * (1.0f / 3.5f), 448.0f))});
  if (3.5f * e4m3_value(top) < most && top < 126) ++top;
  // Measured scales have halves, and their u are not clamped.
  const bool searched = s.usable && top >= 16 && exact && amax < kCostClamp;
  if (!__any_sync(~0u, searched)) return largest == 0 ? 1 : search_all(s, own, global, largest);

  top = max(top, 16);
  const int high = top + 7;
  const bool clips = __any_sync(~0u, 3.5f * e4m3_value(top) < most);
  const Lowest start = clips ? measure_clipping(s, tiles, high) : measure<false>(h, tiles, high);
  search.limit = s.limit(start.bound, search.error);
  const std::uint32_t first = 1u << start.slot;
  std::uint32_t left = 0;
  if (searched) {
    left = allowed<kCandidates>(tiles, search.limit);
    if (left == first) left = 0;  // the only candidate needs no exact cost
    left |= allowed_doubles(s, tiles, search.limit, high);
    for (int bit = 16; bit < 24 && high - bit >= 1 && !search.clips_too_much(high - bit); ++bit)
      left |= 1u << bit;
  }
  std::uint32_t code;
  if (__any_sync(~0u, (left & 1u << 23) != 0 || (searched && !(search.limit < INFINITY))) ||
      __reduce_add_sync(~0u, static_cast<unsigned>(__popc(left))) > kPool) {
    code = search_widely(s, tiles, search, searched, top, start.slot);
  } else {
    std::uint32_t alive = weigh(s, tiles, search, left, high);
    for (; alive != 0; alive &= alive - 1)
      for (int next = code_at(high, __ffs(static_cast<int>(alive)) - 1) + 8; next <= 126;
           next += 8) {
        const float c = cost_apart(s, own, global, next);
        search.best.offer(c, static_cast<std::uint32_t>(next));
        if (!(c <= s.limit_at_half(search.limit))) break;
      }
    const int started = high - start.slot;
    if ((left & first) == 0 && search.best.cost <= search.limit)
      search.best.offer(cost_apart(s, own, global, started), static_cast<std::uint32_t>(started));
    code =
        search.best.cost <= search.limit ? search.best.code : static_cast<std::uint32_t>(started);
  }
  if (largest == 0) return 1;
  return searched ? code : search_all(s, own, global, largest);
}

}  // namespace nvfp4::cuda
