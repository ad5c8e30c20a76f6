#pragma once

#include "backends/cuda/gemm/sm90/epilogue.cuh"
#include "backends/cuda/gemm/swiglu_values.cuh"

/// Converts sums of gate and up to SwiGLU, stored or quantized. The bits equal those of separate
/// operations (FP32 sums, then swiglu_into() or swiglu_quantize_into()).
namespace nvfp4::cuda {

/// Row stride, in floats, of a slab of 32 outputs in shared memory. The stride avoids bank
/// conflicts.
inline constexpr int kSwigluStride = 36;

/// Computes SwiGLU in registers. The results go through shared memory, so that four threads have a
/// block of 16 and a warp writes rows of out.
template <class Config, int kSums>
__device__ __forceinline__ void epilogue_swiglu(const KernelArguments& p, const WorkTile& work,
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
      // Rows of x past the end have arbitrary values.
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

/// Like epilogue_tma_store(), for 32 outputs.
template <class Config, int kSums>
__device__ __forceinline__ void epilogue_swiglu_tma_store(
    const KernelArguments& p, const CUtensorMap& out_map, const WorkTile& work,
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
      // Rows of x past the end have arbitrary values.
      fast = fast && (fabsf(gate[n]) <= kFastGate ||
                      t0 + n / 2 * 8 + lane % 4 * 2 + n % 2 >= work.m_end - work.m);
    }
    swiglu_values(p.limit, fast, gate, up, value);
    std::uint32_t packed[kValues / 2];
#pragma unroll
    for (int i = 0; i < kValues / 2; ++i)
      packed[i] = Config::kType == DType::bf16 ? pack_bf16(value[2 * i], value[2 * i + 1])
                                               : pack_f16(value[2 * i], value[2 * i + 1]);
    __syncwarp();  // lanes with large gates arrive later
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
