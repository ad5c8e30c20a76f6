#pragma once

#include "backends/cuda/device/block.cuh"
#include "backends/cuda/gemm/sm120/omma_config.cuh"
#include "backends/cuda/gemm/sm120/quantized_x.h"
#include "backends/cuda/gemm/sm80/mainloop.cuh"
#include "backends/cuda/gemm/sm80/pipeline.cuh"

/// Copies codes and scales of x to the stages by cp.async. W is loaded as in sm80.
///
/// For a chunk of 64 columns and a part of K, a stage has the codes, [row] of two pieces of 16
/// bytes. The pieces are swapped in rows 4 to 7 of eight, so that ldmatrix reads all banks. The
/// scales follow, a word for each row: see scale_stride().
namespace nvfp4::cuda::sm120 {

__device__ __forceinline__ int code_piece_at(int row, int piece) {
  return row * kRowBytes + ((piece ^ (row >> 2 & 1)) << 4);
}

/// Loads rows of x of a tile for a part of K; `row` is the first. Rows past the end are not loaded:
/// other rows' sums do not depend on them.
template <class Config>
class XLoader {
  using Codes = sm80::Share<Config, Config::kTileM * 2>;
  using Scales = sm80::Share<Config, Config::kTileM>;
  static constexpr int kCodeRows = Config::kPartThreads / 2;  ///< rows at a time
  static_assert(kCodeRows % 8 == 0);

 public:
  __device__ __forceinline__ XLoader(const QuantizedX& x, const KernelArguments& p,
                                     const WorkTile& work, int row,
                                     const sm80::KSlice<Config>& slice, int part)
      : row_bytes_(x.row_bytes),
        code_step_(slice.step * kRowBytes),
        scale_step_(slice.step * x.scale_step) {
    // x_of_group: each group has its own columns.
    const int first = slice.first + (p.x_of_group ? work.group * p.chunks : 0);
    const int r = Codes::thread() / 2, piece = Codes::thread() % 2;
    rows_ = work.m_end - work.m;
    to_ = part * Config::kXPartBytes + code_piece_at(r, piece);
    from_ = x.codes + (row + r) * x.row_bytes + static_cast<std::int64_t>(first) * kRowBytes +
            piece * 16;
    scales_to_ = part * Config::kXPartBytes + Config::kTileM * kRowBytes +
                 (Scales::thread() % 8 * Config::kScaleStride + Scales::thread() / 8) * 4;
#pragma unroll
    for (int i = 0; i < Scales::kEach; ++i)
      scales_[i] = x.scales + first * x.scale_step +
                   scale_offset_of(x.layout, row + Scales::piece(i), 0, x.rows, x.blocks);
  }
  __device__ __forceinline__ void load(std::uint32_t stage) {
#pragma unroll
    for (int i = 0; i < Codes::kEach; ++i)
      if (Codes::has(i) && Codes::piece(i) / 2 < rows_)
        ptx::cp_async_16(stage + to_ + i * (kCodeRows * kRowBytes),
                         from_ + i * kCodeRows * row_bytes_);
#pragma unroll
    for (int i = 0; i < Scales::kEach; ++i) {
      if (Scales::has(i) && Scales::piece(i) < rows_)
        ptx::cp_async_4(stage + scales_to_ + i * (Config::kPartThreads / 8 * 4), scales_[i]);
      scales_[i] += scale_step_;
    }
    from_ += code_step_;
  }

 private:
  const std::uint8_t* from_;
  const std::uint8_t* scales_[Scales::kEach];
  std::int64_t row_bytes_;
  int code_step_;
  std::int64_t scale_step_;
  int rows_, to_, scales_to_;
};

}  // namespace nvfp4::cuda::sm120
