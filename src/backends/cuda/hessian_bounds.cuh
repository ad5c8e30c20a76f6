#pragma once

#include "backends/cuda/device/difference.cuh"
#include "backends/cuda/device/search.cuh"

/// Holds H of a block of K in shared memory, and bounds of rᵀ H r. Device code only.
///
/// L = rᵀ B r with B = H - e D in TF32, D = diag(σᵢ Hᵢᵢ), e = 2^-9, τ = 2^-30 a² Σ σᵢ Hᵢᵢ, a = max
/// u:
/// 1. L - τ <= cost <= L + τ + 2 e rᵀ D r. TF32 cuts r by 2^-10 and rounds B by 2^-11; FP32 sums of
///    24 terms add 3e-6; r in units of x is off by less than 2^-22 a. 3 · 2^-13 of e remains.
/// 2. With μ Δ <= H (Cholesky of H - μ Δ): cost <= (L + τ) μ / (μ - 2 e σ).
/// 3. Clipping element k alone costs at least γₖ (a - 6c)², γₖ the larger of μ Hₖₖ and the last
///    pivot of H - 10^-4 Δ with k at the end. All of them cost at least μ Σ Hₖₖ (uₖ - 6c)².
/// 4. If 3.5 c >= a, no element has a smaller difference with 2c: cost(2c) >= (μ / σ) cost(c).
/// 10^-4 covers the rounding of factorizations and costs; underflow is less than 2^-40 of the
/// trace.
namespace nvfp4::cuda {

inline constexpr int kHessianThreads = 256;
inline constexpr int kHessianWarps = kHessianThreads / 32;

struct BestScale {
  float cost = INFINITY;
  std::uint32_t code = 127;

  __device__ void offer(float c, std::uint32_t candidate) {
    if (c < cost || (c == cost && candidate < code)) {
      cost = c;
      code = candidate;
    }
  }
};

template <int kSize>
struct SharedHessian;

template <>
struct SharedHessian<32> {
  alignas(16) float h[32][32];
  alignas(16) float found[kHessianWarps];
  float floor;  ///< lower bound of rᵀ H r / |r|²
};

/// H and its bounds. Δ is the diagonal of H, σᵢ = Σⱼ |Hᵢⱼ| / √(Hᵢᵢ Hⱼⱼ), σ their maximum, and S =
/// |H| element by element. Then |r|ᵀ S |r| <= Σ σᵢ Hᵢᵢ rᵢ² <= σ rᵀ Δ r, since 2 |rᵢ rⱼ| √(Hᵢᵢ Hⱼⱼ)
/// <= Hᵢᵢ rᵢ² + Hⱼⱼ rⱼ².
template <>
struct SharedHessian<16> {
  alignas(16) float h[16][16];
  float lowered[16][16];  ///< H - kLowered · diag(σᵢ Hᵢᵢ), as TF32
  float clip[16];         ///< a cost is at least clip[i] · rᵢ², for any i
  float sigma[16];
  /// The shifts that the half warps found. They are read as whole vectors, so no other thread may
  /// write a part of one at the same time.
  alignas(16) float found[2 * kHessianWarps];
  float floor;    ///< a cost is at least floor · rᵀ Δ r
  float slack;    ///< upper bound of all underflows of a cost or a bound
  float rough;    ///< times amax²: upper bound of rough_difference()'s error in a bound
  float spread;   ///< a cost is at most spread · its bound, if that were exact
  float inverse;  ///< a cost is at most inverse · the cost, or its bound, of twice the scale
  bool usable;    ///< the bounds are valid

  /// Returns an upper bound of the cost. `error` is the largest error of a bound.
  __device__ float limit(float bound, float error) const {
    return spread < INFINITY ? __fmaf_rn(bound + error, spread, error) : INFINITY;
  }
  /// Returns the cost of c above which the costs of its multiples by powers of two exceed `limit`.
  /// For 3.5 c >= |u| no element's difference to those multiples is smaller than to c.
  __device__ float limit_at_half(float limit) const {
    return inverse < INFINITY ? limit * inverse : INFINITY;
  }
};

/// The error of the tensor cores' bounds, relative to Σ σᵢ Hᵢᵢ rᵢ². They cut r to TF32 (2^-10) and
/// round H (2^-11). The remaining 2^-11 exceeds the errors of their sums, of the FP32 sums and of
/// the cost itself, and 2^-13 for `rough`.
inline constexpr float kLowered = 0x1p-9f;

__device__ inline float cost(const SharedHessian<16>& s, const float* x, const BlockGlobal& global,
                             float scale) {
  asm volatile("" ::: "memory");  // otherwise all of H is kept in registers, which do not suffice
  const float factor = global.factor(scale);
  float r[16];
#pragma unroll
  for (int i = 0; i < 16; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(x + i);
    r[i] = difference(four.x, global, scale, factor);
    r[i + 1] = difference(four.y, global, scale, factor);
    r[i + 2] = difference(four.z, global, scale, factor);
    r[i + 3] = difference(four.w, global, scale, factor);
  }
  return hessian_form(r, s.h[0], 16, 16);
}

/// Returns the last pivot of H - shift · Δ with row and column `last` moved to the end. It is at
/// most the part of Hₗₗ that other elements cannot compensate. It is 0 if the matrix is not
/// positive definite. Each half of a warp has its own matrix; lane i of it holds row i.
__device__ inline float last_pivot(const SharedHessian<16>& s, float shift, int last) {
  const int lane = static_cast<int>(threadIdx.x) % 16;
  const auto place = [&](int i) { return i == last ? 15 : i == 15 ? last : i; };
  float row[16];
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const int a = place(lane), b = place(j);
    row[j] = s.h[max(a, b)][min(a, b)];
    if (j == lane) row[j] -= shift * row[j];
  }
  bool definite = true;
  float pivot = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    pivot = __shfl_sync(~0u, row[k], k, 16);
    definite = definite && pivot > 0;
    const float l = __fdividef(row[k], pivot);
#pragma unroll
    for (int j = k + 1; j < 16; ++j) {
      const float below = __shfl_sync(~0u, row[k], j, 16);  // H_jk, j > k
      if (lane > k) row[j] -= l * below;
    }
  }
  return definite ? pivot : 0.0f;
}

/// Sets the bounds. 10^-4 Δ exceeds the rounding errors of the factorization and of every cost.
__device__ inline void find_bounds(SharedHessian<16>& s) {
  constexpr float kRounding = 1e-4f;
  const int half = static_cast<int>(threadIdx.x) / 16, i = static_cast<int>(threadIdx.x) % 16;
  const float own = s.h[half][half], entry = s.h[max(half, i)][min(half, i)];
  float sum = fabsf(entry) * rsqrtf(own) * rsqrtf(s.h[i][i]);
#pragma unroll
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (i == 0) s.sigma[half] = sum;
  const float step = static_cast<float>(half + 1) / 16;
  const float shift = 1.0f - 0.998f * step * step;  // near 1 for many rows, near 0 for few
  const float pivot = last_pivot(s, shift, 15);
  if (i == 0) s.found[half] = pivot > 0 ? shift : 0.0f;
  __syncthreads();
  float sigma = 0, floor = 0, trace = 0, weighted = 0;
  bool usable = true;
  for (int j = 0; j < 16; ++j) {
    // Excludes values near overflow or underflow, and NaN.
    usable = usable && s.h[j][j] >= 0x1p-40f && s.h[j][j] <= 0x1p60f && s.sigma[j] <= 256;
    sigma = fmaxf(sigma, s.sigma[j]);
    floor = fmaxf(floor, s.found[j] - kRounding);
    trace += s.h[j][j];
    weighted = __fmaf_rn(s.sigma[j], s.h[j][j], weighted);
  }
  float clip = floor * own;
  if (floor < 0.5f) clip = fmaxf(clip, last_pivot(s, kRounding, half));
  if (i == 0) s.clip[half] = 0.999f * clip;
  const float lowered = entry - (i == half ? kLowered * sum * own : 0.0f);
  s.lowered[half][i] = __uint_as_float((__float_as_uint(lowered) + 0x1000u) & 0xFFFFE000u);
  if (threadIdx.x == 0) {
    const float loss = 2.0f * kLowered * sigma;
    s.spread = floor > 1.01f * loss ? 1.001f * floor / (floor - 1.001f * loss) : INFINITY;
    s.inverse = floor > 0 ? 1.001f * sigma / floor : INFINITY;
    s.floor = 0.999f * floor;
    s.slack = 0x1p-40f * trace;
    s.rough = 0x1p-30f * weighted;
    s.usable = usable;
  }
  __syncthreads();
}

}  // namespace nvfp4::cuda
