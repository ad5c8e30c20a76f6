#pragma once

#include "backends/cuda/device/encode.cuh"
#include "backends/cuda/device/row.cuh"
#include "backends/cuda/device/swiglu.cuh"
#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/sm90/epilogue.cuh"

/// Sums of gate and up -> SwiGLU, stored or quantized: the bits of the operations one after the
/// other (FP32 sums, swiglu_into() or swiglu_quantize_into()).
namespace nvfp4::cuda {

/// Floats between the tokens of a slab of 32 outputs: no two lanes of a warp in one bank.
inline constexpr int kSwigluStride = 36;

/// Of one output: its gate and its up.
struct SwigluCombination {
  LinearCombination gate, up;

  SwigluCombination() = default;
  /// `packed`: the row of gate as the weights are packed.
  __device__ __forceinline__ SwigluCombination(const GemmArguments& p, int group, int packed) {
    const auto row = [&](int of) {
      return static_cast<int>(gate_up_row(min(of, p.n - 1), p.n / 2, p.interleave));
    };
    gate = LinearCombination(p, group, row(packed));
    up = LinearCombination(p, group, row(packed + 8));
  }
  __device__ __forceinline__ float operator()(const GemmArguments& p, float gate_sum, float up_sum,
                                              float x_global) const {
    return swiglu_one(gate(gate_sum, x_global), up(up_sum, x_global), p.limit);
  }
};

/// A block of 16 outputs of a row of x.
__device__ __forceinline__ void quantize_block(const GemmArguments& p, int token, int column,
                                               const float (&v)[16]) {
  const BlockMaximum maximum = maximum_of(v);
  const Encoder encoder(p.out_globals.of(token).divisor);
  const std::uint32_t code = encoder.scale_code(maximum.amax);
  const std::int64_t blocks = p.n / 32, block = column / 16;
  reinterpret_cast<uint2*>(p.codes)[token * blocks + block] = encoder(v, code, maximum.has_nan);
  p.scales[scale_offset_of(p.scale_layout, token, block, p.m_total, blocks)] =
      static_cast<std::uint8_t>(code);
}

/// Four neighbouring outputs of a row of x.
__device__ __forceinline__ void store_outputs(const GemmArguments& p, int token, int column,
                                              const float (&v)[4]) {
  store_values_of_four(p, token * p.out_stride + column, v, true, 4);
}
/// The same, quantized or not, of those that are `inside`. All lanes of a warp come here together:
/// with a part of them the compiler would take what follows for different from lane to lane.
__device__ __forceinline__ void finish_outputs(const GemmArguments& p, int token, int column,
                                               const float (&v)[4], bool inside) {
  if (p.codes == nullptr) {
    if (inside) store_outputs(p, token, column, v);
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, first = lane & ~3;
  float block[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) block[i] = __shfl_sync(~0u, v[i % 4], first + i / 4);
  if (inside && lane == first) quantize_block(p, token, column, block);
}

/// Whole sums in registers: SwiGLU there, then through shared memory, so that four threads have a
/// block of 16 and a warp writes rows of out.
template <class Config, int kSums>
__device__ __forceinline__ void epilogue_swiglu(const GemmArguments& p, const WorkTile& work,
                                                const float (&d)[kSums], std::uint8_t* of_group,
                                                int group, int warp, int lane) {
  constexpr int kSlabRows = float_slab_rows(2 * kSums);
  static_assert(kSwigluStride <= kSlabStride);
  float* slab = reinterpret_cast<float*>(of_group);
  const int thread = warp * 32 + lane;
  const int tile = row_tile_of<Config>(work, group);
  const SwigluCombination finish(p, work.group, tile * 64 + warp * 16 + lane / 4);
  const bool x_per_row = p.x_global != nullptr && p.x_global_per_row;
  const float x_of_all = x_per_row ? 0.0f : x_global_of(p, 0);
#pragma unroll
  for (int t0 = 0; t0 < 2 * kSums; t0 += kSlabRows) {
    if (Config::kTmaStoreBoxes && t0 >= work.m_end - work.m) break;
    float gate[kSlabRows / 4], up[kSlabRows / 4], value[kSlabRows / 4];
    bool fast = true;
#pragma unroll
    for (int n = 0; n < kSlabRows / 4; ++n) {
      const int t = n / 2 * 8 + lane % 4 * 2 + n % 2;
      const float x = x_per_row ? x_global_of(p, min(work.m + t0 + t, work.m_end - 1)) : x_of_all;
      const float* sums = d + (t0 / 8 + n / 2) * 4 + n % 2;
      gate[n] = finish.gate(sums[0], x);
      up[n] = finish.up(sums[2], x);
      // Rows of x past the end have anything.
      fast = fast && (fabsf(gate[n]) <= kFastGate || work.m + t0 + t >= work.m_end);
    }
    swiglu_values(p.limit, fast, gate, up, value);
    ptx::named_barrier_sync(1 + group, 128);
#pragma unroll
    for (int n = 0; n < kSlabRows / 4; ++n)
      slab[(n / 2 * 8 + lane % 4 * 2 + n % 2) * kSwigluStride + warp * 8 + lane / 4] = value[n];
    ptx::named_barrier_sync(1 + group, 128);
    if (p.codes != nullptr) {
#pragma unroll 1
      for (int i = thread; i - thread < kSlabRows * 2; i += 128) {
        const int t = i / 2, column = tile * 32 + i % 2 * 16;
        if (t >= min(kSlabRows, work.m_end - work.m - t0) || column >= p.n / 2) continue;
        float block[16];
#pragma unroll
        for (int c = 0; c < 16; ++c) block[c] = slab[t * kSwigluStride + i % 2 * 16 + c];
        quantize_block(p, work.m + t0 + t, column, block);
      }
    } else {
      const int column = tile * 32 + thread % 8 * 4;
#pragma unroll
      for (int t = thread / 8; t - thread / 8 < kSlabRows; t += 16) {
        if (t >= min(kSlabRows, work.m_end - work.m - t0) || column >= p.n / 2) continue;
        const float4 four =
            *reinterpret_cast<const float4*>(slab + t * kSwigluStride + thread % 8 * 4);
        const float v[4] = {four.x, four.y, four.z, four.w};
        store_outputs(p, work.m + t0 + t, column, v);
      }
    }
  }
}

/// As epilogue_tma_store(), of 32 outputs.
template <class Config, int kSums>
__device__ __forceinline__ void epilogue_swiglu_tma_store(
    const GemmArguments& p, const CUtensorMap& out_map, const WorkTile& work,
    const float (&d)[kSums], std::uint32_t slab, int group, int warp, int lane) {
  constexpr int kSlabRows = 2 * kSums % 32 == 0 ? 32 : 16, kValues = kSlabRows / 4;
  const int tile = row_tile_of<Config>(work, group);
  const SwigluCombination finish(p, work.group, tile * 64 + warp * 16 + lane / 4);
  const float x = x_global_of(p, 0);
  ptx::named_barrier_sync(1 + group, 128);
#pragma unroll
  for (int t0 = 0; t0 < 2 * kSums; t0 += kSlabRows) {
    if (Config::kTmaStoreBoxes && t0 >= work.m_end - work.m) break;
    float gate[kValues], up[kValues], value[kValues];
    bool fast = true;
#pragma unroll
    for (int n = 0; n < kValues; ++n) {
      const float* sums = d + (t0 / 8 + n / 2) * 4 + n % 2;
      gate[n] = finish.gate(sums[0], x);
      up[n] = finish.up(sums[2], x);
      // Rows of x past the end have anything.
      fast = fast && (fabsf(gate[n]) <= kFastGate ||
                      t0 + n / 2 * 8 + lane % 4 * 2 + n % 2 >= work.m_end - work.m);
    }
    swiglu_values(p.limit, fast, gate, up, value);
    std::uint32_t packed[kValues / 2];
#pragma unroll
    for (int i = 0; i < kValues / 2; ++i)
      packed[i] = Config::kType == DType::bf16 ? pack_bf16(value[2 * i], value[2 * i + 1])
                                               : pack_f16(value[2 * i], value[2 * i + 1]);
    __syncwarp();  // lanes with large gates come later
    // TMA's 64-byte swizzle.
    const int token = t0 + lane % kSlabRows;
    const std::uint32_t to = slab + token * 64 + ((warp ^ token / 2 % 4) << 4);
    if constexpr (kSlabRows == 32)
      ptx::stmatrix_x4_trans(to, packed[0], packed[1], packed[2], packed[3]);
    else
      ptx::stmatrix_x2_trans(to, packed[0], packed[1]);
  }
  tma_store_slab<Config, 64>(p, out_map, work, slab, group, warp, lane, tile * 32);
}

}  // namespace nvfp4::cuda
