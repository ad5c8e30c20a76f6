#pragma once

#include "backends/cuda/gemm/epilogue_values.cuh"
#include "backends/cuda/gemm/sm90/kernels.h"
#include "backends/cuda/ptx/ptx.cuh"

/// Converts sums to out: factors and bias in FP32, one rounding.
namespace nvfp4::cuda {

/// Row stride, in floats, of a slab in shared memory: 64 rows of W and padding. The stride avoids
/// bank conflicts.
inline constexpr int kSlabStride = 68;
/// Returns the rows of x in a slab: in BF16 or FP16, or in FP32 (float_slab_rows). The result
/// divides `tokens`.
NVFP4_HD constexpr int slab_rows(int tokens) {
  return tokens % 64 == 0 ? 64 : tokens % 32 == 0 ? 32 : tokens % 48 == 0 ? 48 : tokens;
}
NVFP4_HD constexpr int float_slab_rows(int tokens) {
  return tokens < 16 ? tokens : slab_rows(tokens) / 2;
}

/// Returns the tile of 64 rows of W of a warpgroup.
template <class Config>
__device__ __forceinline__ int row_tile_of(const WorkTile& work, int group) {
  return work.n_tile * Config::kNGroups + (Config::kNGroups > 1 ? group : 0);
}

/// Loads the inputs of LinearCombination into the L1 cache before the sums are done. (Hopper has no
/// prefetch instruction for L1.)
class PrefetchedFactors {
 public:
  __device__ __forceinline__ PrefetchedFactors(const KernelArguments& p, int group, int row)
      : kept_(LinearCombination(p, group, min(row, p.n - 1))) {}
  /// Keeps the loads alive up to this point.
  __device__ __forceinline__ void use() const {
    asm volatile("" ::"f"(kept_.factor), "f"(kept_.bias));
  }

 private:
  LinearCombination kept_;
};

/// Stores sums as FP32, or to rows without wide stores. Half a slab of rows of x goes through
/// shared memory at a time, so that a warp writes rows of out. `store` gets four sums of token t of
/// the tile; t advances by eight. All threads run the same number of iterations. Otherwise the
/// compiler would treat tile counters as divergent and move descriptors into uniform registers
/// between the multiplications.
template <int kUnroll, bool kShorter, int kSums, class Store>
__device__ __forceinline__ void epilogue_store_f32(const float (&d)[kSums], int tokens,
                                                   std::uint8_t* of_group, int group, int warp,
                                                   int lane, Store&& store) {
  constexpr int kSlabRows = float_slab_rows(2 * kSums);
  float* slab = reinterpret_cast<float*>(of_group);
  const int thread = warp * 32 + lane;
#pragma unroll
  for (int t0 = 0; t0 < 2 * kSums; t0 += kSlabRows) {
    if (kShorter && t0 >= tokens) break;
    ptx::named_barrier_sync(1 + group, 128);
#pragma unroll
    for (int j = 0; j < kSlabRows / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        slab[(j * 8 + lane % 4 * 2 + i % 2) * kSlabStride + warp * 16 + lane / 4 + i / 2 * 8] =
            d[(t0 / 8 + j) * 4 + i];
    ptx::named_barrier_sync(1 + group, 128);
#pragma unroll(kUnroll)
    for (int t = 0; t < kSlabRows; t += 8)
      store(t0 + t + thread / 16, *reinterpret_cast<const float4*>(
                                      slab + (t + thread / 16) * kSlabStride + thread % 16 * 4));
  }
}

template <class Config, int kSums>
__device__ __forceinline__ void epilogue_store_f32(const KernelArguments& p, const WorkTile& work,
                                                   const float (&d)[kSums], std::uint8_t* of_group,
                                                   int group, int warp, int lane) {
  const int thread = warp * 32 + lane;
  const int row = row_tile_of<Config>(work, group) * 64 + thread % 16 * 4;
  constexpr bool kShorter = Config::kTmaStoreBoxes;
  const int tokens = work.m_end - work.m, last = row < p.n ? tokens : 0;
  LinearCombination finish[4];
  combinations_of_four(p, work.group, row, finish);
  // See epilogue_store_16bit(): a short code path where all properties are known.
  if (p.out_type == DType::f32 && p.wide_stores && !p.x_global_per_row) {
    const float x = x_global_of(p, 0);
    float* out = static_cast<float*>(p.out) + (work.m + thread / 16) * p.out_stride +
                 static_cast<std::int64_t>(work.group) * p.out_group_cols + row;
    const std::int64_t step = p.out_stride * 8;
    return epilogue_store_f32<8, kShorter>(
        d, tokens, of_group, group, warp, lane, [&](int t, const float4& sum) {
          if (t < last)
            *reinterpret_cast<float4*>(out) = {finish[0](sum.x, x), finish[1](sum.y, x),
                                               finish[2](sum.z, x), finish[3](sum.w, x)};
          out += step;
        });
  }
  epilogue_store_f32<1, kShorter>(d, tokens, of_group, group, warp, lane,
                                  [&](int t, const float4& sum) {
                                    if (t < last) store_four(p, work, work.m + t, row, sum, finish);
                                  });
}

/// Fills in the combinations of a lane's two rows of W.
template <class Config>
__device__ __forceinline__ void combinations_of_lane(const KernelArguments& p, const WorkTile& work,
                                                     int group, int warp, int lane,
                                                     LinearCombination (&finish)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
    finish[i] = LinearCombination(
        p, work.group,
        min(row_tile_of<Config>(work, group) * 64 + warp * 16 + lane / 4 + i * 8, p.n - 1));
}

/// Rounds two sums of a row to the type of x. x has one global scale.
template <DType kType>
__device__ __forceinline__ std::uint32_t round_pair(const LinearCombination& finish, float x,
                                                    float low, float high) {
  low = finish(low, x), high = finish(high, x);
  return kType == DType::bf16 ? pack_bf16(low, high) : pack_f16(low, high);
}

/// Returns the address of 16 bytes of a row of x in a slab of 64 rows of W. The order depends on
/// the token, avoids bank conflicts and is TMA's 128-byte swizzle.
__device__ __forceinline__ std::uint32_t slab_address(std::uint32_t slab, int token, int piece) {
  return slab + token * 128 + ((piece ^ token % 8) << 4);
}

/// Stores sums as BF16 or FP16: rounded in registers, transposed by stmatrix. `round` converts two
/// sums of row r (0 or 1) for tokens t and t + 1.
template <class Config, int kSums, class Round>
__device__ __forceinline__ void epilogue_store_16bit(const KernelArguments& p, const WorkTile& work,
                                                     const float (&d)[kSums], std::uint32_t slab,
                                                     int group, int warp, int lane,
                                                     const Round& round) {
  constexpr int kSlabRows = slab_rows(2 * kSums);
  const int thread = warp * 32 + lane;
  const int first_row = row_tile_of<Config>(work, group) * 64;
  const int piece = thread % 8;  // 8 rows of W, 16 bytes
  const int last = first_row + piece * 8 < p.n ? work.m_end - work.m - thread / 8 : 0;
  const std::int64_t stride = p.out_stride * 16;
  std::uint16_t* out = static_cast<std::uint16_t*>(p.out) + (work.m + thread / 8) * p.out_stride +
                       static_cast<std::int64_t>(work.group) * p.out_group_cols + first_row +
                       piece * 8;
#pragma unroll
  for (int t0 = 0; t0 < 2 * kSums; t0 += kSlabRows) {
    if (Config::kTmaStoreBoxes && t0 >= work.m_end - work.m) break;
    std::uint32_t packed[kSlabRows / 8][2];
#pragma unroll
    for (int j = 0; j < kSlabRows / 8; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float* v = d + (t0 / 8 + j) * 4 + r * 2;
        packed[j][r] = round(r, t0 + j * 8 + lane % 4 * 2, v[0], v[1]);
      }
    ptx::named_barrier_sync(1 + group, 128);
    const auto address = [&](int token, int piece_of) {
      return slab_address(slab, token, piece_of);
    };
#pragma unroll
    for (int j = 0; j < kSlabRows / 8; j += 2) {
      if constexpr (kSlabRows == 8)
        ptx::stmatrix_x2_trans(address(lane % 8, warp * 2 + lane / 8 % 2), packed[0][0],
                               packed[0][1]);
      else
        ptx::stmatrix_x4_trans(address(j * 8 + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2),
                               packed[j][0], packed[j][1], packed[j + 1][0], packed[j + 1][1]);
    }
    ptx::named_barrier_sync(1 + group, 128);
#pragma unroll
    for (int t = 0; t < kSlabRows; t += 16) {
      const int in_slab = t + thread / 8;
      if (in_slab < kSlabRows && t0 + t < last)
        *reinterpret_cast<uint4*>(out) = ptx::ld_shared<uint4>(address(in_slab, piece));
      out += stride;
    }
  }
}

template <class Config, int kSums>
__device__ __forceinline__ void epilogue_store_16bit(const KernelArguments& p, const WorkTile& work,
                                                     const float (&d)[kSums], std::uint32_t slab,
                                                     int group, int warp, int lane) {
  LinearCombination finish[2];
  combinations_of_lane<Config>(p, work, group, warp, lane, finish);
  // Properties that are known at compile time make the code shorter. The code runs once for each
  // tile, so its instructions are not cached.
  if (p.out_type == Config::kType && !p.x_global_per_row) {
    const float x = x_global_of(p, 0);
    return epilogue_store_16bit<Config>(p, work, d, slab, group, warp, lane,
                                        [&](int r, int, float low, float high) {
                                          return round_pair<Config::kType>(finish[r], x, low, high);
                                        });
  }
  epilogue_store_16bit<Config>(
      p, work, d, slab, group, warp, lane, [&](int r, int t, float low, float high) {
        const auto x = [&](int of) { return x_global_of(p, min(work.m + of, work.m_end - 1)); };
        low = finish[r](low, x(t)), high = finish[r](high, x(t + 1));
        return p.out_type == DType::bf16 ? pack_bf16(low, high) : pack_f16(low, high);
      });
}

/// Stores a slab that all threads of a warpgroup have written, from `column` on. A row of x has
/// kBytes bytes. TMA stores while the next tile is multiplied, at once or in boxes. Rows of x
/// beyond the last whole box are stored by the threads.
template <class Config, int kBytes>
__device__ __forceinline__ void tma_store_slab(const KernelArguments& p, const CUtensorMap& out_map,
                                               const WorkTile& work, std::uint32_t slab, int group,
                                               int warp, int lane, int column) {
  ptx::fence_proxy_async_shared();
  ptx::named_barrier_sync(1 + group, 128);
  if constexpr (!Config::kTmaStoreBoxes) {
    if (warp == 0 && lane == 0) ptx::cp_async_bulk_tensor_2d_store(&out_map, column, work.m, slab);
  } else {
    const int tokens = work.m_end - work.m;
    int t = 0;
    for (int box = 0; t + p.out_box <= tokens; t += p.out_box, ++box)
      if (lane == 0 && warp == box % 4)
        ptx::cp_async_bulk_tensor_2d_store(&out_map, column, work.m + t, slab + t * kBytes);
    constexpr int kPieces = kBytes / 16;
    const int thread = warp * 32 + lane, piece = thread % kPieces;
    t += thread / kPieces;
    if (t < tokens) {
      const int there = piece ^ (kBytes == 128 ? t : t / 2) % kPieces;  // see slab_address()
      *reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(p.out) + (work.m + t) * p.out_stride +
                                column + piece * 8) =
          ptx::ld_shared<uint4>(slab + t * kBytes + (there << 4));
    }
  }
}

/// Stores tiles whose rows of W are complete, rounded to the type of x. x has one global scale. The
/// previous TMA store must have read the slab.
template <class Config, int kSums>
__device__ __forceinline__ void epilogue_tma_store(const KernelArguments& p,
                                                   const CUtensorMap& out_map, const WorkTile& work,
                                                   const float (&d)[kSums], std::uint32_t slab,
                                                   int group, int warp, int lane) {
  LinearCombination finish[2];
  combinations_of_lane<Config>(p, work, group, warp, lane, finish);
  const float x = x_global_of(p, 0);
  ptx::named_barrier_sync(1 + group, 128);
#pragma unroll
  for (int j = 0; j < kSums / 4; j += 2) {
    if (Config::kTmaStoreBoxes && j % 4 == 0 && j * 8 >= work.m_end - work.m) break;
    std::uint32_t packed[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float* v = d + (j + i) * 4 + r * 2;
        packed[i][r] = round_pair<Config::kType>(finish[r], x, v[0], v[1]);
      }
    ptx::stmatrix_x4_trans(
        slab_address(slab, j * 8 + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2), packed[0][0],
        packed[0][1], packed[1][0], packed[1][1]);
  }
  const int column = work.group * p.out_group_cols + row_tile_of<Config>(work, group) * 64;
  tma_store_slab<Config, 128>(p, out_map, work, slab, group, warp, lane, column);
}

}  // namespace nvfp4::cuda
