#pragma once

#include "backends/cuda/gemm/epilogue_factors.cuh"
#include "backends/cuda/gemm/sm90/epilogue.cuh"
#include "backends/cuda/gemm/sm90/epilogue_swiglu.cuh"
#include "backends/cuda/gemm/tile_scheduler.cuh"
#include "backends/cuda/ptx/ptx.cuh"

/// Adds up sums of strips of 16 rows and parts of K, then stores them or their SwiGLU.
namespace nvfp4::cuda {

/// The shared memory of a block after its stages.
template <int kStages, int kTileN, int kTileM>
struct SmallMState {
  std::uint64_t full[kStages], empty[kStages];
  TileSchedulerState scheduler;
  float w_global[kTileN], bias[kTileN], x_global[kTileM], alpha;
};

/// Stores the sums of a warp as [part][token][row].
template <class Config, int kSums>
__device__ __forceinline__ void store_small_m_partials(const float (&d)[kSums], float* partials,
                                                       int part, int strip, int lane) {
  partials += part * Config::kTileM * Config::kPartialStride + strip * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = j * 8 + lane % 4 * 2 + i % 2;
      if (token < Config::kTileM)
        partials[token * Config::kPartialStride + i / 2 * 8] = d[j * 4 + i];
    }
}

__device__ __forceinline__ float4 operator+(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/// Adds up four adjacent rows of token t in the order of the parts; 16 parts are added in pairs.
template <class Config>
__device__ __forceinline__ float4 sum_of_parts(const float* partials, int t, int row) {
  constexpr int kOrdered = Config::kParts < 16 ? Config::kParts : 8;
  const auto of = [&](int part) {
    return *reinterpret_cast<const float4*>(
        partials + (part * Config::kTileM + t) * Config::kPartialStride + row);
  };
  float4 sum = {0, 0, 0, 0};
#pragma unroll
  for (int part = 0; part < kOrdered; ++part)
    sum = sum + (Config::kParts < 16 ? of(part) : of(part) + of(part + 8));
  return sum;
}

template <class Config, class State>
__device__ __forceinline__ void epilogue_small_m(const KernelArguments& p, const WorkTile& work,
                                                 const float* partials, const State& state) {
  constexpr int kAcross = Config::kTileN / 4;  // threads along a row of x
  static_assert(Config::kThreads / kAcross >= Config::kTileM);
  const int row = static_cast<int>(threadIdx.x) % kAcross * 4;
  const int t = static_cast<int>(threadIdx.x) / kAcross, token = work.m + t;
  const int out_row = work.n_tile * Config::kTileN + row;
  if (t >= Config::kTileM || token >= work.m_end || out_row >= p.n) return;
  const float4 sum = sum_of_parts<Config>(partials, t, row);
  const float x = p.x_global == nullptr ? 1.0f : state.x_global[t];
  float v[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = combination_of(p, state, row + i)(v[i], x);
  store_values_of_four(
      p, token * p.out_stride + static_cast<std::int64_t>(work.group) * p.out_group_cols + out_row,
      v, out_row + 4 <= p.n, p.n - out_row);
}

template <class Config, class State>
__device__ __forceinline__ void epilogue_small_m_swiglu(const KernelArguments& p,
                                                        const WorkTile& work, const float* partials,
                                                        const State& state) {
  constexpr int kAcross = Config::kTileN / 8;  // threads along a row of x
  static_assert(kAcross >= 4 && Config::kThreads / kAcross >= Config::kTileM);
  const int output = static_cast<int>(threadIdx.x) % kAcross * 4;
  const int row = output / 8 * 16 + output % 8;  // row of gate
  const int t = static_cast<int>(threadIdx.x) / kAcross, token = work.m + t;
  const int column = work.n_tile * (Config::kTileN / 2) + output;
  const bool inside = t < Config::kTileM && token < work.m_end && column < p.n / 2;
  float v[4] = {};
  if (inside) {
    const float4 gates = sum_of_parts<Config>(partials, t, row);
    const float4 ups = sum_of_parts<Config>(partials, t, row + 8);
    const float x = p.x_global == nullptr ? 1.0f : state.x_global[t];
    const float gate[4] = {gates.x, gates.y, gates.z, gates.w};
    const float up[4] = {ups.x, ups.y, ups.z, ups.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      v[i] = swiglu_one(combination_of(p, state, row + i)(gate[i], x),
                        combination_of(p, state, row + 8 + i)(up[i], x), p.limit);
  }
  finish_outputs(p, token, column, v, inside);
}

}  // namespace nvfp4::cuda
