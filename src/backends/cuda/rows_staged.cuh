#pragma once

#include "backends/cuda/dependent_launch.cuh"
#include "backends/cuda/device/fast_math.cuh"
#include "backends/cuda/device/row.cuh"
#include "backends/cuda/device/stage.cuh"
#include "backends/cuda/device/swiglu.cuh"

/// The fused operations for many rows, staged through shared memory. (The staged routing of RowArgs
/// is another thing: a copy of ids and weights.) Thread blocks have few warps and a row each, so
/// that one computes while another waits. The next row is loaded to shared memory meanwhile. The
/// kernels require the max quantizer and aligned rows. Device code only.
namespace nvfp4::cuda {

inline constexpr int kStaticShared = 1024;  ///< bytes; more than WarpResults has
inline constexpr int kStagedWarps = 8;      ///< largest number of warps in a thread block

/// Number of adjacent chunks that a warp holds. They are a subtree of the row's sums.
template <RowKind kKind, bool kResidual>
inline constexpr int kStagedBlocks = kKind == RowKind::swiglu || kResidual ? 2 : 4;
template <DType kType, bool kResidual>
inline constexpr int kStagedResident = kType != DType::f32 && kResidual ? 3 : 2;

/// Number of input rows of an output row: gate and up, or x and its residual.
template <RowKind kKind, bool kResidual>
inline constexpr int kOperands = kKind == RowKind::swiglu || kResidual ? 2 : 1;

/// Bytes of shared memory of one warp: its part of the row and of the weights.
template <RowKind kKind, DType kType, bool kResidual>
inline constexpr int kStagedBytes =
    kStagedBlocks<kKind, kResidual> * (WarpStage<kType>::kBytes * kOperands<kKind, kResidual> +
                                       (kKind == RowKind::norm ? kChunk * 64 : 0));

/// The results of the warps, which all threads combine. With two buffers one barrier for each
/// reduction suffices: a writer has passed the other buffer's barrier since the last reads.
struct WarpResults {
  float4 (*buffers)[kStagedWarps / 4];
  int warp;  ///< index among the warps of the row
  int turn = 0;

  __device__ void clear() {
    if (threadIdx.x < 2 * kStagedWarps) reinterpret_cast<float*>(buffers)[threadIdx.x] = 0;
    __syncthreads();
  }
  /// Combines the results. Missing warps count as 0. There is no branch, because it would cost more
  /// than it saves.
  template <class Combine>
  __device__ float operator()(float of_warp, Combine combine) {
    float4* all = buffers[turn];
    turn ^= 1;
    if (threadIdx.x % 32 == 0) reinterpret_cast<float*>(all)[warp] = of_warp;
    __syncthreads();
    const float4 a = all[0], b = all[1];
    return combine(combine(combine(a.x, a.y), combine(a.z, a.w)),
                   combine(combine(b.x, b.y), combine(b.z, b.w)));
  }
};

/// Returns the sum over the warp of kCount values of each lane. Value j of all lanes is a tree, and
/// the trees are combined. Lanes exchange values first, so that fewer shuffles are needed.
template <int kCount>
__device__ inline float warp_tree(const float (&v)[kCount]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float left[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) left[j] = v[j];
  int width = kCount, step = 1;
#pragma unroll
  for (; width > 1; width /= 2, step *= 2) {
    const bool odd = lane & step;
#pragma unroll
    for (int j = 0; j < width; j += 2) {
      const float other = __shfl_xor_sync(~0u, odd ? left[j] : left[j + 1], step);
      left[j / 2] = (odd ? left[j + 1] : left[j]) + other;
    }
  }
#pragma unroll
  for (; step < 32; step *= 2) left[0] = left[0] + __shfl_xor_sync(~0u, left[0], step);
#pragma unroll
  for (step = 1; step < kCount; step *= 2) left[0] = left[0] + __shfl_xor_sync(~0u, left[0], step);
  return left[0];
}

/// The copies of a warp's part of its rows, one row after the other.
template <RowKind kKind, DType kType, bool kResidual>
struct RowCopies {
  using Stage = WarpStage<kType>;
  static constexpr int kRows = kOperands<kKind, kResidual>;
  // Pieces of a lane.
  static constexpr int kPieces = kStagedBlocks<kKind, kResidual> * Stage::kPieces;
  Stage stage;
  const char* from;     ///< first source of this lane in the next row
  std::int64_t step;    ///< bytes to the row after it
  std::int64_t second;  ///< bytes from a gate to its up, or from x to its residual
  std::int64_t second_step;
  int pieces;          ///< remaining pieces of the row from the lane on
  bool alternating;    ///< gate and up alternate in groups
  int piece, operand;  ///< with alternating: the lane's first piece of gate or up

  __device__ RowCopies(const RowArgs& a, const Stage& s, int first_block) : stage(s) {
    constexpr int kElements = kCopyBytes / kElementBytes<kType>;  // elements of a piece
    const int lane = Stage::lane();
    alternating = kKind == RowKind::swiglu && a.interleave != 0;
    const int streams = alternating ? 2 : 1;
    from = a.x + blockIdx.x * a.x_stride +
           std::int64_t{first_block} * 16 * streams * kElementBytes<kType> + lane * kCopyBytes;
    step = gridDim.x * a.x_stride;
    second = std::int64_t{a.blocks} * 16 * kElementBytes<kType>;
    second_step = 0;
    if constexpr (kResidual) {
      const std::int64_t stride = a.residual.stride * kElementBytes<kType>;
      second = static_cast<const char*>(a.residual.data) - a.x + blockIdx.x * (stride - a.x_stride);
      second_step = gridDim.x * (stride - a.x_stride);
    }
    pieces = (a.blocks - first_block) * Stage::kPieces * streams - lane;
    const int group = a.interleave / kElements;  // in pieces
    operand = (lane & group) != 0;
    piece = ((lane & -2 * group) >> 1) + (lane & (group - 1));
  }

  __device__ void start() {
    if (kKind == RowKind::swiglu && alternating)
      start_alternating();
    else if (pieces + Stage::lane() >= 32 * kPieces)  // uniform in a warp
      start_halves<true>();
    else
      start_halves<false>();
    from += step;
    if (kResidual) second += second_step;
  }

 private:
  template <bool kAll>
  __device__ void start_halves() const {
#pragma unroll
    for (int j = 0; j < kStagedBlocks<kKind, kResidual>; ++j)
#pragma unroll
      for (int i = 0; i < Stage::kPieces; ++i) {
        const int n = 32 * (j * Stage::kPieces + i);
        if (kAll || pieces > n)
#pragma unroll
          for (int o = 0; o < kRows; ++o)
            stage.copy(j * kRows + o, 2 * i, Stage::lane(), from + o * second + n * kCopyBytes);
      }
  }
  /// Copies groups of gate and up: adjacent lanes copy adjacent pieces, 16 of gate and 16 of up.
  __device__ void start_alternating() const {
#pragma unroll
    for (int i = 0; i < 2 * kStagedBlocks<kKind, kResidual> * Stage::kPieces; ++i) {
      constexpr int kIn = 2 * Stage::kPieces;  // groups of 16 pieces in a chunk
      if (pieces > 32 * i)
        stage.copy(i / kIn * 2 + operand, i % kIn, piece, from + 32 * i * kCopyBytes);
    }
  }
};

/// The part of a row and of shared memory that belongs to a warp and a thread.
template <RowKind kKind, DType kType, bool kResidual>
struct StagedPlace {
  using Stage = WarpStage<kType>;
  static constexpr int kBlocks = kStagedBlocks<kKind, kResidual>;
  static constexpr int kPieces = kBlocks * kOperands<kKind, kResidual>;  // chunks of kChunk blocks

  int warp;          ///< index among the warps of the row
  int first, block;  ///< first block of the warp, and of the thread
  Stage stage;

  __device__ StagedPlace(const RowArgs& a, uint4* memory) {
    const int warps = static_cast<int>(blockDim.x) / 32;
    // The last part of a row may be shorter. Rotation spreads that warp over the schedulers.
    const int turn = static_cast<int>(blockIdx.x * (blockDim.x / 32) / gridDim.x);
    warp = (static_cast<int>(threadIdx.x) / 32 + turn) % warps;
    first = warp * kBlocks * kChunk;
    block = first + lane();
    stage.memory = reinterpret_cast<char*>(memory) + warp * kStagedBytes<kKind, kType, kResidual>;
  }
  __device__ static int lane() { return Stage::lane(); }
  __device__ bool is_last() const { return warp == static_cast<int>(blockDim.x) / 32 - 1; }

  /// Zeroes the stage if the row does not fill it.
  __device__ void clear(const RowArgs& a) const {
    if (first + kBlocks * kChunk > a.blocks) stage.clear(kPieces);
  }
  /// Loads the norm's weights: four vectors for each block of the thread, kChunk apart.
  __device__ const float4* load_weights(const RowArgs& a) const {
    float4* weights = reinterpret_cast<float4*>(stage.memory + kPieces * Stage::kBytes) + lane();
#pragma unroll
    for (int i = 0; i < 4 * kBlocks; ++i) {
      const int of = block + i / 4 * kChunk;
      weights[i * kChunk] =
          of < a.blocks
              ? __ldg(reinterpret_cast<const float4*>(a.weight) + std::int64_t{of} * 4 + i % 4)
              : float4{0, 0, 0, 0};
    }
    return weights;
  }
};

/// The global scale of rows and its encoder.
struct RowScale {
  Encoder encoder;
  float multiplier = 1;

  __device__ void take_given(const RowArgs& a, std::int32_t row) {
    const GlobalScale global = a.globals.of(row);
    multiplier = global.multiplier;
    encoder = Encoder(global.divisor);
  }
};

/// A warp's part of a row.
template <RowKind kKind, DType kType, bool kResidual>
struct StagedRow {
  static constexpr int kBlocks = kStagedBlocks<kKind, kResidual>;
  static constexpr bool kPlain = kKind == RowKind::plain;
  Block<kType> x[kPlain ? kBlocks : 1];
  float v[kPlain ? 1 : kBlocks][16];
  float maxima[kBlocks];

  /// Reports whether the row ends before chunk j, where the second half of the warp's part begins.
  /// blocks_left counts from the warp's first block.
  __device__ static bool ends_before(int j, int blocks_left) {
    return kBlocks > 2 && j == kBlocks / 2 && blocks_left <= j * kChunk;
  }

  /// Returns block j of the thread: x, or the sum of x and the residual, which is also stored.
  __device__ static Block<kType> input(const RowArgs& a, const WarpStage<kType>& stage,
                                       std::int64_t row, int block, int j) {
    Block<kType> b = stage.block(j * kOperands<kKind, kResidual>);
    if constexpr (kResidual) {
      b = rounded_sum(b, stage.block(2 * j + 1));
      if (block + j * kChunk < a.blocks)
        store_block(b, static_cast<char*>(a.residual_out.data) +
                           (row * a.residual_out.stride + (block + j * kChunk) * 16) *
                               kElementBytes<kType>);
    }
    return b;
  }

  /// Reads the norm's input again from global memory; it includes the residual.
  __device__ void read_again(const RowArgs& a, std::int64_t row, int block) {
    const char* from = a.x + row * a.x_stride;
    if (kResidual)
      from = static_cast<const char*>(a.residual_out.data) +
             row * a.residual_out.stride * kElementBytes<kType>;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      Block<kType> b{};
      if (block + j * kChunk < a.blocks)
#pragma unroll
        for (int h = 0; h < Block<kType>::kWords; h += 4) {
          // Not through the read-only cache: this thread may have written them.
          const uint4 four = __ldcg(reinterpret_cast<const uint4*>(
              from + ((block + j * kChunk) * 16 * kElementBytes<kType> + 4 * h)));
          b.words[h] = four.x;
          b.words[h + 1] = four.y;
          b.words[h + 2] = four.z;
          b.words[h + 3] = four.w;
        }
#pragma unroll
      for (int i = 0; i < 16; ++i) v[j][i] = b.value(i);
    }
  }

  /// Reads the row. `block` is the thread's first; its kBlocks blocks are kChunk apart.
  __device__ void read(const RowArgs& a, const WarpStage<kType>& stage, std::int64_t row, int block,
                       int blocks_left) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      if (ends_before(j, blocks_left)) break;
      if constexpr (kPlain) {
        x[j] = stage.block(j);
      } else if constexpr (kKind == RowKind::swiglu) {
        swiglu_block(stage.block(2 * j), stage.block(2 * j + 1), a.limit, v[j]);
      } else {
        const Block<kType> b = input(a, stage, row, block, j);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          v[j][i] = b.value(i);
          // Otherwise the compiler keeps the words and unpacks them again after the barrier.
          asm volatile("" : "+f"(v[j][i]));
        }
      }
    }
  }

  /// Normalizes the row. `reciprocal` is 1 / row length. `writes`: this thread stores 1 / rms.
  __device__ void normalize(const RowArgs& a, std::int32_t row, WarpResults& results,
                            const float4* weights, float reciprocal, int blocks_left, bool writes) {
    float sums[kBlocks] = {};
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      if (ends_before(j, blocks_left)) break;
      sums[j] = block_squares(v[j]);
    }
    const float total = results(warp_tree(sums), Sum{});
    const float rstd = fast_reciprocal_rms(total, a.blocks * 16, reciprocal, a.eps);
    if (a.rstd != nullptr && writes) a.rstd[row] = rstd;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      if (ends_before(j, blocks_left)) break;
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        const float4 w = weights[(4 * j + i / 4) * kChunk];
        v[j][i] = normalized(v[j][i], w.x, rstd);
        v[j][i + 1] = normalized(v[j][i + 1], w.y, rstd);
        v[j][i + 2] = normalized(v[j][i + 2], w.z, rstd);
        v[j][i + 3] = normalized(v[j][i + 3], w.w, rstd);
      }
    }
    if (a.intermediate != DType::f32)
#pragma unroll
      for (int j = 0; j < kBlocks; ++j)
#pragma unroll
        for (int i = 0; i < 16; ++i) v[j][i] = rounded_to(a.intermediate, v[j][i]);
  }

  /// Returns the largest magnitude, ignoring NaN, and sets `maxima`.
  __device__ float measure(int blocks_left) {
    float largest = 0;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      if (ends_before(j, blocks_left)) break;
      if constexpr (kPlain) {
        std::uint32_t bits = x[j].amax_bits();
        if (bits > Block<kType>::kInfinity) bits = x[j].replace_nans();
        maxima[j] = Block<kType>::magnitude(bits);
      } else {
        maxima[j] = maximum_without_nans(v[j]);
      }
      largest = fmaxf(largest, maxima[j]);
    }
    return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(largest)));
  }

  /// Encodes the row. `block` is the thread's first; codes and scales point to it, and scales are
  /// `step` apart.
  __device__ void encode(const Encoder& encoder, int block, int blocks, int blocks_left,
                         uint2* codes, std::uint8_t* scales, std::int64_t step) {
    std::uint32_t code[kBlocks];
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) code[j] = encoder.scale_code(maxima[j]);
    const auto store = [&](int j, uint2 of_block) {
      if (block + j * kChunk >= blocks) return;
      codes[j * kChunk] = of_block;
      scales[j * step] = static_cast<std::uint8_t>(code[j]);
    };
    if (encoder.ordinary) [[likely]] {
      // All factors are computed first, because reciprocals have a long latency.
      float eighth[kBlocks];
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) eighth[j] = encoder.eighth(code[j]);
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) {
        if (ends_before(j, blocks_left)) break;
        if constexpr (kPlain)
          store(j, encode_block(x[j], eighth[j]));
        else
          store(j, encode16(v[j], eighth[j]));
      }
    } else {
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) {
        if (ends_before(j, blocks_left)) break;
        if constexpr (kPlain)
          store(j, encoder(x[j], code[j]));
        else
          store(j, encoder.encode(v[j], code[j]));
      }
    }
  }

  __device__ void store(const RowArgs& a, std::int64_t row, int block) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      float values[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) values[i] = v[j][i];
      if (block + j * kChunk < a.blocks)
        store_values(a.y.data, a.y.dtype, row * a.y.stride + std::int64_t{block + j * kChunk} * 16,
                     values);
    }
  }
};

/// Copies the routing of all rows with a few threads of the grid for each: the number of experts of
/// a token, rounded up to a power of two.
__device__ inline void stage_all_routing(const RowArgs& a) {
  const int shift = min(5, 32 - __clz(a.top_k - 1));
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x >> shift;
#pragma unroll 1
  for (std::int64_t row = thread >> shift; row < a.rows; row += step)
#pragma unroll 1
    for (auto t = static_cast<std::int32_t>(thread & ((1 << shift) - 1)); t < a.top_k;
         t += 1 << shift)
      stage_route(a, row, t);
}

/// Processes rows. kStores: stores them instead of quantizing. kResidual: for the norm; residual
/// and sum have the type of x.
template <RowKind kKind, DType kType, bool kStores, bool kResidual>
__global__ void __launch_bounds__(32 * kStagedWarps, kStagedResident<kType, kResidual>)
    staged_rows_kernel(const RowArgs a) {
  constexpr bool kPlain = kKind == RowKind::plain;  // only plain has groups and routing
  using Stage = WarpStage<kType>;
  extern __shared__ uint4 memory[];
  __shared__ float4 buffers[2][kStagedWarps / 4];
  const StagedPlace<kKind, kType, kResidual> place(a, memory);
  const int lane = place.lane(), first = place.first, block = place.block;
  const Stage stage = place.stage;
  WarpResults results{buffers, place.warp};
  results.clear();
  place.clear(a);
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const float4* weights = nullptr;
  if constexpr (kKind == RowKind::norm) weights = place.load_weights(a);
  __syncwarp();
  RowCopies<kKind, kType, kResidual> copies(a, stage, first);
  copies.start();
  if constexpr (kPlain)
    if (a.top_k > 0) stage_all_routing(a);
  const ScaleAddress scales(a, block);
  uint2* codes = reinterpret_cast<uint2*>(a.codes) + block;
  RowScale scale;
  if (!kStores && a.mode == RowMode::quantize && !a.measure && !a.of_vectors)
    scale.take_given(a, 0);
  float tensor_amax = 0;
  const float reciprocal = ordinary_reciprocal(static_cast<float>(a.blocks * 16));
  const bool writes = place.is_last() && lane == 0;  // the warp with the least work
  const auto step = static_cast<std::int32_t>(gridDim.x);

  for (auto row = static_cast<std::int32_t>(blockIdx.x); row < a.rows; row += step) {
    wait_for_copies();
    __syncwarp();
    StagedRow<kKind, kType, kResidual> r;
    r.read(a, stage, row, block, a.blocks - first);
    __syncwarp();
    if (row + step < a.rows) copies.start();
    if constexpr (kKind == RowKind::norm)
      r.normalize(a, row, results, weights, reciprocal, a.blocks - first, writes);
    if constexpr (kStores) {
      r.store(a, row, block);
      continue;
    }
    const bool counts = !kPlain || !a.has_groups || in_a_group(a.groups, row);
    const float amax = r.measure(a.blocks - first);
    if (a.mode == RowMode::amax) {
      if (counts) tensor_amax = fmaxf(tensor_amax, amax);
      continue;
    }
    if (a.measure) {
      const MeasuredScale measured(counts ? results(amax, Largest{}) : 0.0f);
      scale.encoder = Encoder(measured.divisor);
      if (writes) a.global_scale[row] = measured.multiplier();
    } else {
      if (a.of_vectors) scale.take_given(a, row);
      if (a.write_globals && writes && (a.of_vectors || row == 0))
        a.global_scale[a.of_vectors ? row : 0] = scale.multiplier;
    }
    if (counts)
      r.encode(scale.encoder, block, a.blocks, a.blocks - first,
               codes + row * std::int64_t{a.blocks}, scales.of(a.scale_steps, row),
               a.scale_steps.chunk);
    else
      clear_row(a, row);
  }
  if (!kStores && a.mode == RowMode::amax && lane == 0)
    atomicMax(reinterpret_cast<unsigned*>(a.global_scale), __float_as_uint(tensor_amax));
}

}  // namespace nvfp4::cuda
