#pragma once

#include "backends/cuda/dependent_launch.cuh"
#include "backends/cuda/device/fast_math.cuh"
#include "backends/cuda/device/row.cuh"
#include "backends/cuda/device/stage.cuh"
#include "backends/cuda/device/swiglu.cuh"

/// The fused operations on many rows: thread blocks of few warps, each with a row of its own, so
/// that one computes while another waits. The next row comes to shared memory meanwhile. For the
/// max quantizer and aligned rows. Device code only.
namespace nvfp4::cuda {

inline constexpr int kStaticShared = 1024;  ///< bytes, more than WarpResults have
inline constexpr int kStagedWarps = 8;      ///< in a thread block at most

/// A warp holds kBlocks chunks side by side: a subtree of the row's sums.
template <RowKind kKind, bool kResidual>
inline constexpr int kStagedBlocks = kKind == RowKind::swiglu || kResidual ? 2 : 4;
template <DType kType, bool kResidual>
inline constexpr int kStagedResident = kType != DType::f32 && kResidual ? 3 : 2;

/// Rows that are read to make one: gate and up, or x and its residual.
template <RowKind kKind, bool kResidual>
inline constexpr int kOperands = kKind == RowKind::swiglu || kResidual ? 2 : 1;

/// Bytes of shared memory of one warp: its part of the row, and of the weights.
template <RowKind kKind, DType kType, bool kResidual>
inline constexpr int kStagedBytes =
    kStagedBlocks<kKind, kResidual> * (WarpStage<kType>::kBytes * kOperands<kKind, kResidual> +
                                       (kKind == RowKind::norm ? kChunk * 64 : 0));

/// Results of the warps, which all threads combine. There are two buffers, so that one barrier for
/// each reduction is enough: whoever writes a buffer again has passed the other's barrier since.
struct WarpResults {
  float4 (*buffers)[kStagedWarps / 4];
  int warp;  ///< of those of the row
  int turn = 0;

  __device__ void clear() {
    if (threadIdx.x < 2 * kStagedWarps) reinterpret_cast<float*>(buffers)[threadIdx.x] = 0;
    __syncthreads();
  }
  /// What no warp wrote is 0. Read without a branch: it would cost more than it saves.
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

/// Σ over the warp of kCount values of each lane, value j of all lanes a tree, and the trees one.
/// Lanes exchange values first, so that few are left to shuffle.
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

/// The copies of what a warp reads of its rows, one row after the other.
template <RowKind kKind, DType kType, bool kResidual>
struct RowCopies {
  using Stage = WarpStage<kType>;
  static constexpr int kRows = kOperands<kKind, kResidual>;
  static constexpr int kPieces = kStagedBlocks<kKind, kResidual> * Stage::kPieces;  // of a lane
  Stage stage;
  const char* from;     ///< what this lane copies first of the next row
  std::int64_t step;    ///< bytes to the row after that
  std::int64_t second;  ///< bytes from a gate to its up, or from x to its residual
  std::int64_t second_step;
  int pieces;          ///< that lie ahead of the lane in a row
  bool alternating;    ///< gate and up, in groups
  int piece, operand;  ///< alternating: which gate or up the lane copies first

  __device__ RowCopies(const RowArgs& a, const Stage& s, int first_block) : stage(s) {
    constexpr int kElements = kCopyBytes / kElementBytes<kType>;  // of a piece
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
    const int group = a.interleave / kElements;  // pieces
    operand = (lane & group) != 0;
    piece = ((lane & -2 * group) >> 1) + (lane & (group - 1));
  }

  __device__ void start() {
    if (kKind == RowKind::swiglu && alternating)
      start_alternating();
    else if (pieces + Stage::lane() >= 32 * kPieces)  // the same for the warp
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
  /// Neighbouring lanes copy neighbours, 16 pieces of gate and 16 of up.
  __device__ void start_alternating() const {
#pragma unroll
    for (int i = 0; i < 2 * kStagedBlocks<kKind, kResidual> * Stage::kPieces; ++i) {
      constexpr int kIn = 2 * Stage::kPieces;  // 16s in a chunk
      if (pieces > 32 * i)
        stage.copy(i / kIn * 2 + operand, i % kIn, piece, from + 32 * i * kCopyBytes);
    }
  }
};

/// Which part of a row, and of shared memory, is whose.
template <RowKind kKind, DType kType, bool kResidual>
struct StagedPlace {
  using Stage = WarpStage<kType>;
  static constexpr int kBlocks = kStagedBlocks<kKind, kResidual>;
  static constexpr int kPieces = kBlocks * kOperands<kKind, kResidual>;  // of kChunk blocks

  int warp;          ///< of those of the row
  int first, block;  ///< of the warp, of the thread
  Stage stage;

  __device__ StagedPlace(const RowArgs& a, uint4* memory) {
    const int warps = static_cast<int>(blockDim.x) / 32;
    // The last part of a row may be shorter: not for warps of the same scheduler in every row.
    const int turn = static_cast<int>(blockIdx.x * (blockDim.x / 32) / gridDim.x);
    warp = (static_cast<int>(threadIdx.x) / 32 + turn) % warps;
    first = warp * kBlocks * kChunk;
    block = first + lane();
    stage.memory = reinterpret_cast<char*>(memory) + warp * kStagedBytes<kKind, kType, kResidual>;
  }
  __device__ static int lane() { return Stage::lane(); }
  __device__ bool is_last() const { return warp == static_cast<int>(blockDim.x) / 32 - 1; }

  /// What no row reaches reads as zeros.
  __device__ void clear(const RowArgs& a) const {
    if (first + kBlocks * kChunk > a.blocks) stage.clear(kPieces);
  }
  /// Of the norm: for each block of the thread four vectors, kChunk apart.
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

/// What rows are encoded with.
struct RowScale {
  Encoder encoder;
  float multiplier = 1;

  __device__ void take_given(const RowArgs& a, std::int32_t row) {
    const GlobalScale global = a.globals.of(row);
    multiplier = global.multiplier;
    encoder = Encoder(global.divisor);
  }
};

/// The part of a row that a warp holds.
template <RowKind kKind, DType kType, bool kResidual>
struct StagedRow {
  static constexpr int kBlocks = kStagedBlocks<kKind, kResidual>;
  static constexpr bool kPlain = kKind == RowKind::plain;
  Block<kType> x[kPlain ? kBlocks : 1];
  float v[kPlain ? 1 : kBlocks][16];
  float maxima[kBlocks];

  /// Whether the row ends before the second half of what the warp may hold, which begins with its
  /// chunk j. blocks_left: from the warp's first one.
  __device__ static bool ends_before(int j, int blocks_left) {
    return kBlocks > 2 && j == kBlocks / 2 && blocks_left <= j * kChunk;
  }

  /// Block j of the thread: x, or its sum with the residual, which is also stored.
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

  /// The norm's input, from global memory: the sum with the residual is there.
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
          // Not as constants: this thread may have written them.
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

  /// `block`: the first of the thread, of kBlocks that are kChunk apart.
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
          // Otherwise the words are kept, and unpacked again after the barrier.
          asm volatile("" : "+f"(v[j][i]));
        }
      }
    }
  }

  /// `reciprocal`: 1 / the row's length. `writes`: this thread alone gives 1 / rms.
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

  /// Largest magnitude, NaN ignored; sets `maxima`.
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

  /// `block`: the first of the thread; `codes`, `scales`: where it goes, the others `step` further.
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
      // All factors first: one waits long for its reciprocal.
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

/// Copies the routing of all rows, a few threads of the grid each: as many as there are experts for
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

/// kStores: instead of quantizing. kResidual: of the norm, and it and the sum have the type of x.
template <RowKind kKind, DType kType, bool kStores, bool kResidual>
__global__ void __launch_bounds__(32 * kStagedWarps, kStagedResident<kType, kResidual>)
    staged_rows_kernel(const RowArgs a) {
  constexpr bool kPlain = kKind == RowKind::plain;  // alone has groups and routing
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
  const bool writes = place.is_last() && lane == 0;  // that warp has least to do
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
