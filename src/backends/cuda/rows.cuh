#pragma once

#include <type_traits>

#include "backends/cuda/dependent_launch.cuh"
#include "backends/cuda/device/fast_math.cuh"
#include "backends/cuda/device/row.cuh"
#include "backends/cuda/device/swiglu.cuh"

/// The fused operations. A thread block computes a row in registers and quantizes or stores it. A
/// thread holds kBlocks blocks of 16. Device code only.
namespace nvfp4::cuda {

/// The variants of a kernel. The fast form has the max quantizer and aligned rows, and contains no
/// calls: even a call that is not executed costs registers. The general form handles the rest.
enum class RowForm : std::uint8_t { fast, general };

/// Returns the index of block j of a thread. In the fast form adjacent threads hold adjacent
/// blocks, so that loads are coalesced. The number of threads is then a power of two, unless
/// kBlocks is 1. A chunk of blocks is a subtree of the row's sums. In the general form a thread's
/// blocks are adjacent, because a block of 32 may be two of them.
template <RowForm kForm, int kBlocks>
__device__ inline int block_of(int j) {
  const int thread = static_cast<int>(threadIdx.x);
  return kForm == RowForm::fast ? thread + j * static_cast<int>(blockDim.x) : thread * kBlocks + j;
}

/// Limits of threads in a thread block, and of resident thread blocks on a multiprocessor. One
/// block computes while another waits. With few rows there is only one.
template <RowForm kForm, int kBlocks>
inline constexpr int kMostThreads = kForm == RowForm::general ? 1024
                                    : kBlocks == 2            ? 256
                                                              : 512;
template <RowForm kForm, RowKind kKind, int kBlocks>
inline constexpr int kLeastResident = kForm == RowForm::general || kBlocks != 2 ? 1
                                      : kKind == RowKind::plain                 ? 3
                                                                                : 2;

/// The inputs of a row that a thread loads first.
template <RowForm kForm, RowKind kKind, DType kType, int kBlocks>
struct RowInput {
  static constexpr bool kGeneral = kForm == RowForm::general;
  static constexpr int kOperands = kKind == RowKind::swiglu ? 2 : kKind == RowKind::mix ? 0 : 1;
  Block<kType> x[kBlocks][kOperands + 1];  // one more element, because an array cannot be empty

  __device__ void load(const RowArgs& a, std::int32_t row) {
    constexpr int kBytes = kElementBytes<kType>;
    const char* start = a.x + row * a.x_stride;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const int block = block_of<kForm, kBlocks>(j);
      if (block >= a.blocks) {  // zeros do not change sums and maxima
#pragma unroll
        for (int o = 0; o < kOperands; ++o) x[j][o] = {};
        continue;
      }
      const std::int64_t k = std::int64_t{block} * 16;
      if constexpr (kKind == RowKind::plain || kKind == RowKind::norm) {
        x[j][0] = load_block<kType, kGeneral>(start + k * kBytes, a.aligned);
      } else if constexpr (kKind == RowKind::swiglu) {
        const int group = a.interleave;
        if (!kGeneral || (a.aligned && (group == 0 || group >= 8))) {
          GateAndUp<kType>(start, block, a.blocks, group).load(x[j][0], x[j][1]);
        } else if (group == 0) {
          x[j][0] = load_block<kType, true>(start + k * kBytes, false);
          x[j][1] =
              load_block<kType, true>(start + (std::int64_t{a.blocks} * 16 + k) * kBytes, false);
        } else if constexpr (kGeneral) {
          const char* gate = start + (2 * k - k % group) * kBytes;
          Block<kType> copies[2];
          load_scattered(gate, group, 2 * group, &copies[0]);
          load_scattered(gate + std::int64_t{group} * kBytes, group, 2 * group, &copies[1]);
          x[j][0] = copies[0];
          x[j][1] = copies[1];
        }
      }
    }
  }
};

/// Computes the values of a row before any normalization.
template <RowForm kForm, RowKind kKind, DType kType, int kBlocks>
__device__ inline void make_values(const RowArgs& a, std::int32_t row,
                                   const RowInput<kForm, kKind, kType, kBlocks>& input,
                                   float (&v)[16 * kBlocks]) {
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    const int block = block_of<kForm, kBlocks>(j);
    if constexpr (kKind == RowKind::swiglu) {
      swiglu_block(input.x[j][0], input.x[j][1], a.limit, v + 16 * j);
    } else if constexpr (kKind == RowKind::mix) {
      mix_block<kType, kForm == RowForm::general>(a, row, block, v + 16 * j);
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i) v[16 * j + i] = input.x[j][0].value(i);
      if constexpr (kKind == RowKind::norm)
        if (a.has_residual && block < a.blocks)
          add_residual<kForm == RowForm::general>(a, row, std::int64_t{block} * 16, v + 16 * j);
    }
  }
}

/// True for few rows: a block for each thread and at most 16 warps have the lowest latency.
template <RowForm kForm, int kBlocks>
inline constexpr bool kQuick = kForm == RowForm::fast && kBlocks == 1;

/// A reduction over all threads. Each thread reads the results of all warps. There are two buffers,
/// see RowReduction.
struct QuickReduction {
  float (*buffers)[4 * 32];
  int turn = 0;

  __device__ float sum(float v) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) v = v + __shfl_xor_sync(~0u, v, step);
    return of_warps(v, Sum{});
  }
  /// Returns the maximum. Values must not be negative.
  __device__ float largest(float v) {
    return of_warps(__uint_as_float(__reduce_max_sync(~0u, __float_as_uint(v))), Largest{});
  }

 private:
  template <class Combine>
  __device__ float of_warps(float v, Combine combine) {
    const int thread = static_cast<int>(threadIdx.x), warps = static_cast<int>(blockDim.x) / 32;
    if (warps == 1) return v;
    float* shared = buffers[turn];
    turn ^= 1;
    if (thread % 32 == 0) shared[thread / 32] = v;
    if (thread >= warps && thread < 16) shared[thread] = 0;
    __syncthreads();
    float fours[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 f = reinterpret_cast<const float4*>(shared)[i];
      fours[i] = combine(combine(f.x, f.y), combine(f.z, f.w));
    }
    return tree(fours, combine);
  }
};

__device__ inline void normalize_fast(const RowArgs& a, std::int32_t row, QuickReduction& reduce,
                                      const float* weights, float (&v)[16]) {
  const std::int32_t n = a.blocks * 16;
  const float reciprocal = ordinary_reciprocal(static_cast<float>(n));
  const float total = reduce.sum(block_squares(v));
  const float rstd = fast_reciprocal_rms(total, n, reciprocal, a.eps);
  if (a.rstd != nullptr && threadIdx.x == 0) a.rstd[row] = rstd;
#pragma unroll
  for (int i = 0; i < 16; ++i) v[i] = normalized(v[i], weights[i], rstd);
  if (a.intermediate != DType::f32)
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = rounded_to(a.intermediate, v[i]);
}

template <RowForm kForm, RowKind kKind, DType kType, int kBlocks>
__global__ void __launch_bounds__(kMostThreads<kForm, kBlocks>,
                                  kLeastResident<kForm, kKind, kBlocks>)
    rows_kernel(const RowArgs a) {
  constexpr int kValues = 16 * kBlocks;
  constexpr bool kNormalizes = kKind == RowKind::norm || kKind == RowKind::mix;
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  alignas(16) __shared__ float buffers[2][4 * 32];
  std::conditional_t<kQuick<kForm, kBlocks>, QuickReduction, RowReduction> reduce{buffers};
  int blocks[kBlocks];
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) blocks[j] = block_of<kForm, kBlocks>(j);
  float weights[kNormalizes ? kValues : 1];
  if constexpr (kNormalizes)
    if (a.weight != nullptr) load_weights<kBlocks>(a, blocks, weights);
  const auto step = static_cast<std::int32_t>(gridDim.x);
  float tensor_amax = 0;
  RowInput<kForm, kKind, kType, kBlocks> input;
  input.load(a, static_cast<std::int32_t>(blockIdx.x));

  for (auto row = static_cast<std::int32_t>(blockIdx.x); row < a.rows; row += step) {
    RowInput<kForm, kKind, kType, kBlocks> next;
    if (row + step < a.rows) next.load(a, row + step);
    if (a.top_k > 0) stage_routing(a, row);
    const bool counts = !a.has_groups || in_a_group(a.groups, row);

    float v[kValues];
    make_values(a, row, input, v);
    if constexpr (kNormalizes)
      if (kKind == RowKind::norm || a.weight != nullptr) {
        if constexpr (kQuick<kForm, kBlocks>)
          normalize_fast(a, row, reduce, weights, v);
        else
          normalize<kBlocks, kForm == RowForm::fast>(a, row, reduce, weights, v);
      }

    if (a.mode == RowMode::store) {
#pragma unroll
      for (int j = 0; j < kBlocks; ++j)
        if (blocks[j] < a.blocks)
          store_values(a.y.data, a.y.dtype, row * a.y.stride + std::int64_t{blocks[j]} * 16,
                       v + 16 * j);
    } else {
      BlockMaximum maxima[kBlocks];
      float thread_amax = 0;
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) {
        maxima[j] = maximum_of(v + 16 * j);
        thread_amax = fmaxf(thread_amax, blocks[j] < a.blocks ? maxima[j].amax : 0.0f);
      }
      if (a.mode == RowMode::amax) {
        if (counts) tensor_amax = fmaxf(tensor_amax, thread_amax);
      } else {
        GlobalScale global{};
        float row_amax[1] = {thread_amax};
        if (!a.measure) {
          global = a.globals.of(row);
        } else if constexpr (kQuick<kForm, kBlocks>) {
          row_amax[0] = counts ? reduce.largest(thread_amax) : 0.0f;
          global.divisor = MeasuredScale(row_amax[0]).divisor;
        } else {
          global = global_scale_for(counts ? reduce(row_amax, Largest{}) : 0.0f, a.quantizer);
        }
        if (counts)
          encode_row<kBlocks, kForm == RowForm::general>(a, row, blocks, v, maxima, global);
        else
          clear_row(a, row);
        if (kQuick<kForm, kBlocks> && a.measure)  // the multiplier is needed only now
          global.multiplier = MeasuredScale(row_amax[0]).multiplier();
        if (a.write_globals && threadIdx.x == 0 && (a.of_vectors || row == 0))
          a.global_scale[a.of_vectors ? row : 0] = global.multiplier;
      }
    }
    input = next;
  }
  if (a.mode == RowMode::amax) {
    const unsigned m = __reduce_max_sync(~0u, __float_as_uint(tensor_amax));
    if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<unsigned*>(a.global_scale), m);
  }
}

}  // namespace nvfp4::cuda
