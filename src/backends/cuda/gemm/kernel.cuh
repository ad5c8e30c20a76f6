#pragma once

#include <type_traits>

#include "backends/cuda/early.cuh"
#include "backends/cuda/gemm/async.cuh"
#include "backends/cuda/gemm/decode.cuh"
#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/help.cuh"
#include "backends/cuda/gemm/load.cuh"
#include "backends/cuda/gemm/problem.h"
#include "backends/cuda/gemm/schedule.cuh"
#include "backends/cuda/gemm/store.cuh"
#include "backends/cuda/gemm/store_parts.cuh"
#include "backends/cuda/gemm/store_swiglu.cuh"
#include "backends/cuda/gemm/wgmma.cuh"
#include "nvfp4/layout.h"

/// outᵀ = W · xᵀ by wgmma with W as the A operand, decoded from shared memory into registers.
///
/// One warp brings tiles of x (copy engine, swizzled) and of W (contiguous) into a ring of stages.
/// Two or three warpgroups multiply: they have 64 rows of W each of the same tokens, or half of the
/// tokens of the same rows, or take turns along the depth. While the tensor cores work on a chunk
/// of 64 columns, the next one is decoded.
namespace nvfp4::cuda {

inline constexpr int kBehindBarrier = 5;  ///< where warpgroups wait for the first of them

/// What a block keeps in shared memory beside its stages.
template <int kStages>
struct BlockState {
  std::uint64_t full[kStages], empty[kStages];
  PartsState parts;
  ScheduleState schedule;
  HelpState help;
};

template <DType kTypeOf, int kTokensOf, int kRowsOf, bool kSwigluOf, bool kNextOf = false,
          bool kHelpedOf = false>
struct FragmentConfig {
  static constexpr DType kType = kTypeOf;
  static constexpr bool kSwiglu = kSwigluOf;
  static constexpr int kTokens = kTokensOf, kRows = kRowsOf;
  static constexpr GemmTile kTile{kTokens, kRows, 1, kNextOf};
  static constexpr int kRowGroups = row_groups(kTile), kTokenGroups = token_groups(kTile);
  static constexpr int kDepthGroups = depth_groups(kTile);
  static constexpr int kGroupTokens = kTokens / kTokenGroups;  ///< those of one warpgroup
  static constexpr int kWarpgroups = kRowGroups * kTokenGroups * kDepthGroups;  ///< that multiply
  static constexpr int kConsumers = kWarpgroups * 128;                          ///< their threads
  static constexpr bool kLarge = !leaves_room(kTile);
  static constexpr bool kHelped = kHelpedOf;  ///< there are helpers
  static constexpr bool kOneTile = is_one_tile(kTile);
  static constexpr bool kManySplits = is_tile({kTokens, kRows, 8});  ///< of the depth; else two
  /// For the fewest tokens, mma.sync has less to wait for than wgmma.
  static constexpr bool kSync = kTokens == 8;
  static constexpr int kBlocksPerSm = blocks_per_multiprocessor(kTile);
  /// Registers move between warpgroups, so in large tiles the copying warp is a whole group.
  static constexpr int kThreads = kConsumers + (kLarge ? 128 : kHelped ? 64 : 32);
  /// What sums leave goes to the warpgroup that copies, which spills with the fewest.
  static constexpr bool kManySums = kTokens * kRows >= 128 * 128;
  static constexpr int kConsumerRegisters = kWarpgroups == 3 ? 152 : kManySums ? 224 : 208;
  static constexpr int kProducerRegisters = kWarpgroups == 3 || kManySums ? 56 : 88;
  static constexpr int kStageChunks = stage_chunks(kTile);
  static constexpr int kGroupChunks = kStageChunks / kDepthGroups;  ///< those of one warpgroup
  static constexpr int kShapes = shape_count(kTile);
  template <int kIndex>
  static constexpr int kShape = token_shapes(kTile)[kIndex];
  static constexpr int kXChunkBytes = kTokens * kTileCols * 2;
  static constexpr int kXBytes = kXChunkBytes * kStageChunks;
  static constexpr int kWRowBytes = kTileBytes * kStageChunks;  ///< of 64 rows
  static constexpr int kWBytes = kRowGroups * kWRowBytes;
  static constexpr int kStageBytes = kXBytes + kWBytes;
  /// Whole tiles wait there for the copy engine, the others go through it in parts. Of tiles that
  /// multiply what they have, it stores that, in boxes.
  static constexpr bool kStoresTiles = stores_tiles(kTile), kStoresBoxes = stores_boxes(kTile);
  static constexpr int kFloatSlabBytes = float_slab_tokens(kGroupTokens) * kSlabStride * 4;
  static constexpr int kTileSlabBytes = kStoresTiles ? kGroupTokens * (kSwiglu ? 64 : 128) : 0;
  /// Of a warpgroup; a swizzle atom has 1024 bytes.
  static constexpr int kSlabBytes =
      kOneTile
          ? 0
          : round_up(kFloatSlabBytes > kTileSlabBytes ? kFloatSlabBytes : kTileSlabBytes, 1024);
  static constexpr int kPartialStride = kRows + 4;  ///< floats between the tokens of partial sums
  static constexpr int kPartialBytes = kDepthGroups * kTokens * kPartialStride * 4;
  static constexpr int kStages =
      ((kLarge ? 220 : 107) * 1024 - kWarpgroups * kSlabBytes) / kStageBytes;
  static constexpr int kRingBytes =
      kStages * kStageBytes > kPartialBytes ? kStages* kStageBytes : kPartialBytes;
  static constexpr int kSlabOffset = round_up(kRingBytes, 1024);
  static constexpr int kStateOffset = kSlabOffset + kWarpgroups * kSlabBytes;
  static constexpr int kSharedBytes = kStateOffset + sizeof(BlockState<kStages>);
  static_assert(kGroupChunks >= 1 && kStages >= 3);
  static_assert(kSharedBytes <= (kLarge ? 227 : 113) * 1024);
};

/// Calls multiply with the least shape of the tile that is enough for so many tokens.
template <class Config, int kIndex = 0, class Multiply>
__device__ __forceinline__ void at_shape(int tokens, const Multiply& multiply) {
  constexpr int kTokens = Config::template kShape<kIndex>;
  if constexpr (kTokens >= Config::kGroupTokens) {
    multiply(std::integral_constant<int, Config::kGroupTokens>{});
  } else {
    if (tokens <= kTokens) return multiply(std::integral_constant<int, kTokens>{});
    at_shape<Config, kIndex + 1>(tokens, multiply);
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    fragment_gemm_kernel(const __grid_constant__ CUtensorMap x_map,
                         const __grid_constant__ CUtensorMap out_map,
                         const __grid_constant__ FragmentGemm p) {
  extern __shared__ __align__(1024) std::uint8_t ring[];
  auto& state = *reinterpret_cast<BlockState<Config::kStages>*>(ring + Config::kStateOffset);
  const std::uint32_t x_ring = shared_address(ring);
  const std::uint32_t w_ring = x_ring + Config::kStages * Config::kXBytes;
  const std::uint32_t full = shared_address(state.full), empty = shared_address(state.empty);
  // The same for all lanes, and the compiler knows it: descriptors stay in uniform registers.
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);

  constexpr bool kHelped = Config::kHelped;
  Schedule<Config, true> schedule(p, state.schedule);
  const Depth depth = depth_of<Config>(p);
  const bool helps = kHelped && is_helper(p);
  const SlicePlace<Config> slice(depth.last - depth.first, helps);
  const auto place_of = [&](int stage) { return kHelped ? slice.of_stage(stage) : stage; };
  const int room = Config::kStages - (kHelped && slice.first < Config::kStages ? 1 : 0);
  const int early = min(depth.last - depth.first, min(room, p.early));
  Loader<Config> loader(p, x_map, x_ring, full);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStages; ++i) barrier_init(empty + i * 8, Config::kConsumers / 32);
    barrier_init(shared_address(&state.parts.there), p.splits);
    barrier_init(shared_address(&state.parts.read), p.splits);
    if constexpr (kHelped) init_help<Config>(state.help);
    barriers_initialized();
  }
  // The weights do not depend on the kernel before; all that it may have written does.
  if (threadIdx.x == Config::kConsumers) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&x_map) : "memory");
    for (int i = 0; i < Config::kStages; ++i) barrier_init(full + i * 8, 1);
    barriers_initialized();
    if (Work work; p.ends == nullptr && schedule.first(work)) {
      loader.begin(work);
#pragma unroll 1
      for (int i = 0; i < early; ++i) loader.load_weights(place_of(i), depth.first + i);
    }
  }
  if (p.splits > 1) {
    __syncwarp();
    cluster_arrive();
  }
  if (p.ends != nullptr && !p.ends_settled) wait_for_kernel_before();
  schedule.count();

  if (warpgroup == Config::kWarpgroups) {
    if constexpr (Config::kLarge) shrink_registers<Config::kProducerRegisters>();
    if constexpr (kHelped) {
      // A branch of a whole warp: ptxas keeps what the other one counts in uniform registers.
      if (__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0) == Config::kConsumers / 32 + 1) {
        if (threadIdx.x % 32 == 0) {
          if (helps)
            announce_slices<Config>(p, state.help);
          else
            load_slice<Config>(p, slice, state.help, x_ring, full);
        }
        return;
      }
    }
    if (threadIdx.x == Config::kConsumers) {
      int slot = 0;
      std::uint32_t phase = 1;
      bool waited = false;
      const bool allows_early = Config::kBlocksPerSm == 2 && p.ends == nullptr;
      const auto next_slot = [&] {
        if (++slot == Config::kStages) {
          slot = 0;
          phase ^= 1;
        }
      };
      const auto leave_slot_to_slice = [&] {
        barrier_wait(empty + slot * 8, phase);
        barrier_arrive(shared_address(&state.help.free));
        next_slot();
      };
      for (Work work; schedule.next(work);) {
        loader.begin(work);
        int i = depth.first;
        if (!waited) {
          if (p.ends != nullptr)
#pragma unroll 1
            for (int e = 0; e < early; ++e) loader.load_weights(e, i + e);
          wait_for_kernel_before();
          // Its blocks bring their weights where there is room for them.
          if (allows_early && p.next == 0) allow_next_kernel();
          waited = true;
#pragma unroll 1
          for (; slot < early; ++slot) loader.load_x(place_of(slot), i++);
          if (allows_early && p.next > 0 && p.next < early) allow_next_kernel();
          if (kHelped && early > slice.first) {
            ++slot;
            barrier_arrive(shared_address(&state.help.free));
          }
          if (slot == Config::kStages) {
            slot = 0;
            phase ^= 1;
          }
        }
        for (; i < depth.last; ++i) {
          if (allows_early && i - depth.first == p.next) allow_next_kernel();
          if (kHelped && i - depth.first == slice.first) leave_slot_to_slice();
          barrier_wait(empty + slot * 8, phase);
          loader.load_weights(slot, i);
          loader.load_x(slot, i);
          if (++slot == Config::kStages) {
            slot = 0;
            phase ^= 1;
          }
        }
      }
      if (!waited) wait_for_kernel_before();
      // The memory falls idle: time for the next kernel's weights, if not before.
      allow_next_kernel();
    }
    return;
  }

  if constexpr (Config::kLarge) grow_registers<Config::kConsumerRegisters>();
  constexpr int kGroupChunks = Config::kGroupChunks;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int row_group = Config::kRowGroups > 1 ? warpgroup : 0;
  const int token_group = Config::kTokenGroups == 2 ? warpgroup : 0;
  const int depth_group = Config::kDepthGroups == 2 ? warpgroup : 0;
  // Its part of a stage. Without the remainder, ptxas works addresses of two out for each chunk.
  const int part = depth_group % Config::kDepthGroups;
  const std::uint32_t w_at =
      w_ring + row_group * Config::kWRowBytes + part * (kGroupChunks * kTileBytes);
  const std::uint32_t codes_at = w_at + warp * 512 + lane * 16;
  const std::uint32_t scales_at = w_at + kTileCodeBytes + warp * 64 + lane / 4 * 8;
  // x of the first stage: for mma where a lane reads it, rows of 128 bytes whose pieces of 16 bytes
  // are swizzled; for wgmma its descriptor, in units of 16 bytes. What is added to that has 64 bits
  // from the start, so that an addition is one instruction: it takes the place of one that decodes.
  using XAt = std::conditional_t<Config::kSync, std::uint32_t, std::uint64_t>;
  constexpr XAt kXUnit = Config::kSync ? 1 : 16;
  const XAt x_chunk = p.x_box * (kTileCols * 2 / kXUnit);
  const std::uint32_t x_of_group = x_ring + part * (kGroupChunks * p.x_box * (kTileCols * 2)) +
                                   token_group * (Config::kGroupTokens * kTileCols * 2);
  const XAt x_first = Config::kSync ? x_of_group + lane % 8 * 128 + ((lane / 8 ^ lane % 8) << 4)
                                    : swizzled_descriptor(x_of_group);
  const Shift16 shift{p.sixteen};

  int slot = 0, before = -1;
  std::uint32_t phase = 0;
  const auto x_of = [&](int of) {
    return x_first + static_cast<std::uint32_t>(of) * XAt{Config::kXBytes / kXUnit};
  };
  const auto load = [&](int of, int chunk) {
    const std::uint32_t at = of * Config::kWBytes + chunk * kTileBytes;
    return LaneChunk{load_shared<uint4>(codes_at + at), load_shared<uint2>(scales_at + at)};
  };
  // Steps of 16 columns.
  constexpr std::integral_constant<int, 0> kFirst;
  constexpr std::integral_constant<int, 2> kHalf;
  constexpr std::integral_constant<int, 4> kEnd;
  const auto multiply = [&](auto& d, auto tokens, const Fragments& f, XAt x, auto first,
                            auto last) {
    if constexpr (Config::kSync) {
      const uint4 low = load_matrices(x), high = load_matrices(x ^ 64);
      mma<Config::kType>(d, f[0], low.x, low.y);
      mma<Config::kType>(d, f[1], low.z, low.w);
      mma<Config::kType>(d, f[2], high.x, high.y);
      mma<Config::kType>(d, f[3], high.z, high.w);
    } else {
      wgmma_fence();
#pragma unroll
      for (int k = decltype(first)::value; k < decltype(last)::value; ++k)
        wgmma<Config::kType, decltype(tokens)::value>(d, f[k], x + k * 2);
      wgmma_commit();
    }
  };
  const auto settle = [&](auto in_flight) {
    if constexpr (!Config::kSync) wgmma_wait<decltype(in_flight)::value>();
  };
  const auto release = [&](int of) {
    __syncwarp();  // all have read
    if (of >= 0 && lane == 0) barrier_arrive(empty + of * 8);
  };
  const auto advance = [&] {
    before = slot;
    const bool wrap = slot == Config::kStages - 1;
    slot = wrap ? 0 : slot + 1;
    phase ^= wrap ? 1 : 0;
  };
  // The tensor cores work on one chunk while the next is decoded. With 64 tokens they would wait
  // for the whole of it.
  constexpr bool kHalves = Config::kTokens == 64 && Config::kLarge;
  using Decoded = Fragments[2];
  const auto run_stage = [&](auto& d, auto tokens, Decoded& a, auto parity) {
    barrier_wait(full + slot * 8, phase);
    LaneChunk next = load(slot, 0);
    const int of = slot, stage_before = before;
    const XAt x = x_of(of);
    advance();
#pragma unroll
    for (int c = 0; c < kGroupChunks; ++c) {
      const LaneChunk chunk = next;
      if (c + 1 < kGroupChunks) next = load(of, c + 1);
      Fragments& f = a[(c + decltype(parity)::value * kGroupChunks) % 2];
      if constexpr (kHalves) {
        // As decode_chunk(): with a lambda for each half ptxas serialized an FP16 kernel.
        decode_words<Config::kType>(chunk.codes.x, chunk.codes.y, chunk.scales.x, shift, f[0],
                                    f[1]);
        multiply(d, tokens, f, x + c * x_chunk, kFirst, kHalf);
        decode_words<Config::kType>(chunk.codes.z, chunk.codes.w, chunk.scales.y, shift, f[2],
                                    f[3]);
        multiply(d, tokens, f, x + c * x_chunk, kHalf, kEnd);
        settle(std::integral_constant<int, 2>{});
      } else {
        decode_chunk<Config::kType>(chunk, shift, f);
        multiply(d, tokens, f, x + c * x_chunk, kFirst, kEnd);
        settle(std::integral_constant<int, 1>{});
      }
      if (c == 0) release(stage_before);
    }
  };
  // Where a block has tiles one after the other, the other warpgroups start two stages behind the
  // first: it multiplies while they store, and they while it does.
  constexpr bool kBehind = Config::kLarge && Config::kDepthGroups == 1;
  bool in_step = false;
  using Sums = float[Config::kGroupTokens / 2];
  // The sums of the first tokens of a warpgroup.
  const auto multiply_tile = [&](Sums& d, auto tokens, auto has_slice) {
    constexpr bool kSlice = decltype(has_slice)::value;
    Decoded a;
    before = -1;
    int stage = 0;
    if (kBehind && in_step && warpgroup > 0) {
      part_sync(kBehindBarrier, Config::kConsumers);
      in_step = false;
    }
    const auto let_follow = [&] {
      if (kBehind && in_step) {
        part_arrive(kBehindBarrier, Config::kConsumers);
        in_step = false;
      }
    };
    // One at a time takes fewer registers. Its chunks must be even in number for the fragments.
    constexpr int kAtOnce = Config::kOneTile && Config::kRowGroups > 1 ? 1 : 2;
    static_assert(kAtOnce == 2 || kGroupChunks % 2 == 0);
#pragma unroll 1
    for (int end = kSlice ? min(depth.whole, slice.first) : depth.whole;; end = depth.whole) {
#pragma unroll 1
      for (; stage + kAtOnce - 1 < end; stage += kAtOnce) {
        run_stage(d, tokens, a, std::integral_constant<int, 0>{});
        if constexpr (kAtOnce == 2) run_stage(d, tokens, a, std::integral_constant<int, 1>{});
        let_follow();
      }
      if (!kSlice || end == depth.whole) break;
      const int last_stage = before;
      advance();
      before = last_stage;
    }
    let_follow();  // of few stages
    if (kAtOnce == 2 && stage < depth.whole)
      run_stage(d, tokens, a, std::integral_constant<int, 0>{});
    if (depth.whole < depth.last - depth.first) {
      barrier_wait(full + slot * 8, phase);
      const int left = p.chunks % Config::kStageChunks - part * kGroupChunks;
      for (int c = 0; c < min(left, kGroupChunks); ++c) {
        settle(std::integral_constant<int, 0>{});
        decode_chunk<Config::kType>(load(slot, c), shift, a[0]);
        multiply(d, tokens, a[0], x_of(slot) + c * x_chunk, kFirst, kEnd);
      }
      release(before);
      advance();
    }
    settle(std::integral_constant<int, 0>{});
  };
  // True: the tile is the block's only one.
  const auto store_tile_sums = [&](const Work& work, const Sums& d) {
    if (!Config::kOneTile && p.splits == 1) {
      // Each warpgroup has a slab of its own, whatever the tile: they are not in step.
      const int slab = Config::kSlabOffset + warpgroup * Config::kSlabBytes;
      if constexpr (Config::kStoresTiles) {
        if (lane == 0 && (warp == 0 || Config::kStoresBoxes)) stored_boxes_are_read();
        if (p.store_tiles &&
            (Config::kStoresBoxes || work.token_end - work.token >= Config::kGroupTokens) &&
            (row_tile_of<Config>(work, warpgroup) + 1) * 64 <= p.n) {
          if constexpr (Config::kSwiglu)
            store_swiglu_tile<Config>(p, out_map, work, d, x_ring + slab, warpgroup, warp, lane);
          else
            store_tile<Config>(p, out_map, work, d, x_ring + slab, warpgroup, warp, lane);
          return false;
        }
      }
      if constexpr (Config::kSwiglu)
        store_swiglu<Config>(p, work, d, ring + slab, warpgroup, warp, lane);
      else if (p.wide_stores && p.out_type != DType::f32)
        store_rounded<Config>(p, work, d, x_ring + slab, warpgroup, warp, lane);
      else
        store_slabs<Config>(p, work, d, ring + slab, warpgroup, warp, lane);
      return false;
    }
    if constexpr (Config::kTokenGroups == 1)
      store_parts<Config>(p, work, d, ring, depth.rank, state.parts, row_group, depth_group, warp,
                          lane);
    return true;
  };
  if (p.splits > 1) cluster_wait();
  wait_for_kernel_before();  // factors and biases, which are read before x is there, may be its
  Work work;
  bool more = schedule.next(work);
  in_step = kBehind && p.splits == 1 && schedule.has_next();
  if constexpr (kHelped) {
    if (helps) {
      int done = 0;
      for (; more; more = schedule.next(work)) {
        Sums d = {};
        multiply_tile(d, std::integral_constant<int, Config::kGroupTokens>{}, std::false_type{});
        release(before);
        store_slice<Config>(p, schedule.block_of_tile(), d, state.help.stored[done++], warpgroup);
      }
      return;
    }
  }
  for (; more; more = schedule.next(work)) {
    int tokens = Config::kTokens;
    if constexpr (Config::kShapes > 1) {
      // The compiler must know, too, that it is the same for all lanes.
      tokens = __shfl_sync(~0u, min(work.token_end - work.token, Config::kTokens), 0);
      work.token_end = work.token + tokens;
    }
    if constexpr (Config::kTokenGroups == 2) work.token += token_group * Config::kGroupTokens;
    const EarlyFinish early(
        p, work.group,
        work.row_tile * Config::kRows + static_cast<int>(threadIdx.x) % Config::kRows);
    Sums d = {};
    at_shape<Config>(tokens,
                     [&](auto shape) { multiply_tile(d, shape, std::bool_constant<kHelped>{}); });
    early.use();
    release(before);
    if constexpr (kHelped) {
      barrier_wait(full + slice.slot() * 8, slice.phase());
      add_slice(d, x_ring + slice.slot() * Config::kXBytes, warpgroup);
    }
    if (store_tile_sums(work, d)) return;
  }
  // They need not be written, too: the kernel ends when they are.
  if constexpr (Config::kStoresTiles)
    if (lane == 0 && (warp == 0 || Config::kStoresBoxes)) stored_boxes_are_read();
}

}  // namespace nvfp4::cuda
