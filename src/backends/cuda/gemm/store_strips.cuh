#pragma once

#include "backends/cuda/gemm/async.cuh"
#include "backends/cuda/gemm/schedule.cuh"
#include "backends/cuda/gemm/store.cuh"
#include "backends/cuda/gemm/store_swiglu.cuh"

/// Sums of strips of 16 rows and parts of the depth -> out, or SwiGLU of them.
namespace nvfp4::cuda {

/// What a block keeps in shared memory beside its stages.
template <int kStages, int kRows, int kTokens>
struct StripState {
  std::uint64_t full[kStages], empty[kStages];
  ScheduleState schedule;
  float w_global[kRows], bias[kRows], x_global[kTokens], alpha;
};

/// Starts to bring all factors and biases of a tile; they would else be waited for at its end.
template <class Config, class State>
__device__ __forceinline__ void fetch_factors(const FragmentGemm& p, const Work& work,
                                              State& state) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < Config::kRows) {
    int row = min(work.row_tile * Config::kRows + thread, p.n - 1);
    if constexpr (Config::kSwiglu) row = static_cast<int>(gate_up_row(row, p.n / 2, p.interleave));
    const std::int64_t at = static_cast<std::int64_t>(work.group) * p.n + row;
    copy_4(shared_address(state.w_global + thread),
           p.w_global + (p.w_global_per_row ? at : work.group));
    if (p.bias != nullptr) copy_4(shared_address(state.bias + thread), p.bias + at);
  } else if (thread < Config::kRows + Config::kTokens) {
    const int t = thread - Config::kRows, token = min(work.token + t, work.token_end - 1);
    if (p.x_global != nullptr)
      copy_4(shared_address(state.x_global + t), p.x_global + (p.x_global_per_row ? token : 0));
  } else if (thread == Config::kRows + Config::kTokens) {
    if (p.alpha != nullptr) copy_4(shared_address(&state.alpha), p.alpha + work.group);
  }
}

/// Of row `row` of the tile.
template <class State>
__device__ __forceinline__ Finish finish_of(const FragmentGemm& p, const State& state, int row) {
  return {p, p.alpha == nullptr ? 1.0f : state.alpha, state.w_global[row],
          p.bias == nullptr ? 0.0f : state.bias[row]};
}

/// The sums of a warp, [part][token][row].
template <class Config, int kSums>
__device__ __forceinline__ void store_strip(const float (&d)[kSums], float* partials, int part,
                                            int strip, int lane) {
  partials += part * Config::kTokens * Config::kPartialStride + strip * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = j * 8 + lane % 4 * 2 + i % 2;
      if (token < Config::kTokens)
        partials[token * Config::kPartialStride + i / 2 * 8] = d[j * 4 + i];
    }
}

__device__ __forceinline__ float4 operator+(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/// Four neighbouring rows of token t, in the order of the parts; of 16 parts two at a time.
template <class Config>
__device__ __forceinline__ float4 sum_of_parts(const float* partials, int t, int row) {
  constexpr int kOrdered = Config::kParts < 16 ? Config::kParts : 8;
  const auto of = [&](int part) {
    return *reinterpret_cast<const float4*>(
        partials + (part * Config::kTokens + t) * Config::kPartialStride + row);
  };
  float4 sum = {0, 0, 0, 0};
#pragma unroll
  for (int part = 0; part < kOrdered; ++part)
    sum = sum + (Config::kParts < 16 ? of(part) : of(part) + of(part + 8));
  return sum;
}

template <class Config, class State>
__device__ __forceinline__ void finish_strips(const FragmentGemm& p, const Work& work,
                                              const float* partials, const State& state) {
  constexpr int kAcross = Config::kRows / 4;  // threads along a token
  static_assert(Config::kThreads / kAcross >= Config::kTokens);
  const int row = static_cast<int>(threadIdx.x) % kAcross * 4;
  const int t = static_cast<int>(threadIdx.x) / kAcross, token = work.token + t;
  const int out_row = work.row_tile * Config::kRows + row;
  if (t >= Config::kTokens || token >= work.token_end || out_row >= p.n) return;
  const float4 sum = sum_of_parts<Config>(partials, t, row);
  const float x = p.x_global == nullptr ? 1.0f : state.x_global[t];
  float v[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = finish_of(p, state, row + i)(v[i], x);
  store_values_of_four(
      p, token * p.out_stride + static_cast<std::int64_t>(work.group) * p.out_group_cols + out_row,
      v, out_row + 4 <= p.n, p.n - out_row);
}

template <class Config, class State>
__device__ __forceinline__ void finish_strips_swiglu(const FragmentGemm& p, const Work& work,
                                                     const float* partials, const State& state) {
  constexpr int kAcross = Config::kRows / 8;  // threads along a token
  static_assert(kAcross >= 4 && Config::kThreads / kAcross >= Config::kTokens);
  const int output = static_cast<int>(threadIdx.x) % kAcross * 4;
  const int row = output / 8 * 16 + output % 8;  // of gate
  const int t = static_cast<int>(threadIdx.x) / kAcross, token = work.token + t;
  const int column = work.row_tile * (Config::kRows / 2) + output;
  const bool inside = t < Config::kTokens && token < work.token_end && column < p.n / 2;
  float v[4] = {};
  if (inside) {
    const float4 gates = sum_of_parts<Config>(partials, t, row);
    const float4 ups = sum_of_parts<Config>(partials, t, row + 8);
    const float x = p.x_global == nullptr ? 1.0f : state.x_global[t];
    const float gate[4] = {gates.x, gates.y, gates.z, gates.w};
    const float up[4] = {ups.x, ups.y, ups.z, ups.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      v[i] = swiglu_one(finish_of(p, state, row + i)(gate[i], x),
                        finish_of(p, state, row + 8 + i)(up[i], x), p.limit);
  }
  finish_outputs(p, token, column, v, inside);
}

}  // namespace nvfp4::cuda
