#pragma once

#include "backends/cuda/rows_staged.cuh"

/// Quantizes the RMSNorm of many rows: the common case of staged_rows_kernel(), with one barrier
/// for each row. Device code only.
namespace nvfp4::cuda {

/// The results of the warps of a row. With two instances one barrier for each row suffices: a
/// writer has passed the other instance's barrier since the last reads.
struct RowFindings {
  float4 squares[kStagedWarps / 4];  ///< partial sums of squares
  uint4 maxima[kStagedWarps / 4];    ///< bits of the maximum of |x · weight|, or of NaN

  __device__ void set(int warp, float sum, std::uint32_t maximum) {
    reinterpret_cast<float*>(squares)[warp] = sum;
    reinterpret_cast<std::uint32_t*>(maxima)[warp] = maximum;
  }
  __device__ void get(float& sum, float& largest) const {
    const float4 a = squares[0];
    const uint4 m = maxima[0];
    sum = (a.x + a.y) + (a.z + a.w);
    std::uint32_t bits = max(max(m.x, m.y), max(m.z, m.w));
    if (blockDim.x > 4 * 32) {
      const float4 b = squares[1];
      const uint4 n = maxima[1];
      sum = sum + ((b.x + b.y) + (b.z + b.w));
      bits = max(bits, max(max(n.x, n.y), max(n.z, n.w)));
    }
    largest = __uint_as_float(bits);
  }
};

/// A warp's part of a row, times the weights.
template <DType kType, bool kResidual>
struct WeightedRow {
  static constexpr RowKind kKind = RowKind::norm;
  static constexpr int kBlocks = kStagedBlocks<kKind, kResidual>;
  using Staged = StagedRow<kKind, kType, kResidual>;
  float v[kBlocks][16];
  float maxima[kBlocks] = {};
  float sums[kBlocks] = {};

  __device__ void read(const RowArgs& a, const WarpStage<kType>& stage, std::int32_t row, int block,
                       int blocks_left, const float4* weights) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      if (Staged::ends_before(j, blocks_left)) break;
      const Block<kType> b = Staged::input(a, stage, row, block, j);
      float x[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) x[i] = b.value(i);
      sums[j] = block_squares(x);
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        const float4 w = weights[(4 * j + i / 4) * kChunk];
        v[j][i] = x[i] * w.x;
        v[j][i + 1] = x[i + 1] * w.y;
        v[j][i + 2] = x[i + 2] * w.z;
        v[j][i + 3] = x[i + 3] * w.w;
      }
      maxima[j] = maximum_or_nan(v[j]);
    }
  }
  __device__ std::uint32_t largest_bits() const {
    std::uint32_t largest = 0;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) largest = max(largest, __float_as_uint(maxima[j]));
    return __reduce_max_sync(~0u, largest);
  }

  /// Computes normalized() of row_math.h and encodes it, for an ordinary encoder. See
  /// StagedRow::encode().
  __device__ void encode(const Encoder& encoder, float rstd, int block, int blocks, int blocks_left,
                         uint2* codes, std::uint8_t* scales, std::int64_t step) {
    std::uint32_t code[kBlocks];
    float eighth[kBlocks];
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) code[j] = encoder.scale_code(maxima[j] * rstd);
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) eighth[j] = encoder.eighth(code[j]);
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      if (Staged::ends_before(j, blocks_left)) break;
#pragma unroll
      for (int i = 0; i < 16; ++i) v[j][i] = v[j][i] * rstd;
      const uint2 of_block = encode16(v[j], eighth[j]);
      if (block + j * kChunk < blocks) {
        codes[j * kChunk] = of_block;
        scales[j * step] = static_cast<std::uint8_t>(code[j]);
      }
    }
  }
};

/// Normalizes and quantizes rows. The norm is not rounded first, see RmsNormOptions::intermediate.
/// kMeasures: each row determines its own global scale.
template <DType kType, bool kResidual, bool kMeasures>
__global__ void __launch_bounds__(32 * kStagedWarps, kStagedResident<kType, kResidual>)
    norm_rows_kernel(const RowArgs a) {
  constexpr RowKind kKind = RowKind::norm;
  extern __shared__ uint4 memory[];
  __shared__ float4 buffers[2][kStagedWarps / 4];
  __shared__ RowFindings findings[2];
  if (threadIdx.x < sizeof findings / 4)
    reinterpret_cast<std::uint32_t*>(findings)[threadIdx.x] = 0;
  const StagedPlace<kKind, kType, kResidual> place(a, memory);
  const int block = place.block, blocks_left = a.blocks - place.first;
  WarpResults results{buffers, place.warp};
  results.clear();
  place.clear(a);
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const float4* weights = place.load_weights(a);
  __syncwarp();
  RowCopies<kKind, kType, kResidual> copies(a, place.stage, place.first);
  copies.start();
  const ScaleAddress scales(a, block);
  uint2* codes = reinterpret_cast<uint2*>(a.codes) + block;
  RowScale scale;
  if (!kMeasures && !a.of_vectors) scale.take_given(a, 0);
  const auto n = static_cast<float>(a.blocks * 16);
  const float reciprocal = ordinary_reciprocal(n);
  const bool writes = place.is_last() && place.lane() == 0;  // the warp with the least work
  const auto step = static_cast<std::int32_t>(gridDim.x);
  const auto store_global = [&](std::int32_t row, float measured) {
    if (!writes) return;
    if (kMeasures)
      a.global_scale[row] = measured;
    else if (a.write_globals && (a.of_vectors || row == 0))
      a.global_scale[a.of_vectors ? row : 0] = scale.multiplier;
  };
  int turn = 0;

  for (auto row = static_cast<std::int32_t>(blockIdx.x); row < a.rows; row += step) {
    for (; row < a.rows; row += step) {
      wait_for_copies();
      __syncwarp();
      WeightedRow<kType, kResidual> r;
      r.read(a, place.stage, row, block, blocks_left, weights);
      __syncwarp();
      if (row + step < a.rows) copies.start();
      RowFindings& found = findings[turn];
      turn ^= 1;
      const float sum = warp_tree(r.sums);
      const std::uint32_t maximum = r.largest_bits();
      if (place.lane() == 0) found.set(place.warp, sum, maximum);
      __syncthreads();
      float total, largest;
      found.get(total, largest);
      const float mean = ordinary_quotient(total, n, reciprocal) + a.eps;
      const float rstd = ordinary_reciprocal_root(mean);
      const float amax = largest * rstd;
      bool is_ordinary = mean >= 0x1p-60f && mean <= 0x1p60f && is_ordinary_amax(amax);
      const MeasuredScale measured(kMeasures ? amax : 1.0f, true);
      if constexpr (kMeasures) {
        scale.encoder = Encoder(measured.divisor, true);
      } else {
        if (a.of_vectors) scale.take_given(a, row);
        is_ordinary &= scale.encoder.ordinary;
      }
      if (!is_ordinary) break;
      if (a.rstd != nullptr && writes) a.rstd[row] = rstd;
      store_global(row, measured.multiplier());
      r.encode(scale.encoder, rstd, block, a.blocks, blocks_left,
               codes + row * std::int64_t{a.blocks}, scales.of(a.scale_steps, row),
               a.scale_steps.chunk);
    }
    if (row >= a.rows) break;

    // Slow path: a row with NaN, infinity, zeros only or extreme values is read again from memory.
    StagedRow<kKind, kType, kResidual> r;
    r.read_again(a, row, block);
    r.normalize(a, row, results, weights, reciprocal, blocks_left, writes);
    const float amax = r.measure(blocks_left);
    GlobalScale of_row{scale.multiplier, 1};
    if constexpr (kMeasures) {
      of_row = global_scale_for(results(amax, Largest{}), Quantizer::max);
      scale.encoder = Encoder(of_row.divisor);
    }
    store_global(row, of_row.multiplier);
    r.encode(scale.encoder, block, a.blocks, blocks_left, codes + row * std::int64_t{a.blocks},
             scales.of(a.scale_steps, row), a.scale_steps.chunk);
  }
}

}  // namespace nvfp4::cuda
