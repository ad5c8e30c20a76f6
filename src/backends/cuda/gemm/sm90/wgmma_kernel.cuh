#pragma once

#include "backends/cuda/gemm/sm90/epilogue_store.cuh"
#include "backends/cuda/gemm/sm90/mainloop.cuh"
#include "backends/cuda/gemm/sm90/producer.cuh"

/// Computes outᵀ = W · xᵀ by wgmma. W is the A operand, dequantized from shared memory to
/// registers.
///
/// A producer warp loads tiles of x (TMA, swizzled) and of W (contiguous) into a ring of stages.
/// Two or three warpgroups multiply. They divide the rows of W (64 each), or the rows of x, or the
/// chunks of K.
/// the rows of x of the same rows of W, or take turns along K.
namespace nvfp4::cuda {

template <class Config>
__device__ __forceinline__ void init_barriers(const KernelArguments& p, const Ring& ring,
                                              SharedState<Config::kStages>& state) {
  for (int i = 0; i < Config::kStages; ++i)
    ptx::mbarrier_init(ring.empty + i * 8, Config::kConsumers / 32 * ptx::arrivals_of_group(32));
  const int blocks = p.split_k * ptx::arrivals_of_group(Config::kConsumers);
  ptx::mbarrier_init(ptx::cvta_shared(&state.split_k.there), blocks);
  ptx::mbarrier_init(ptx::cvta_shared(&state.split_k.read), blocks);
  if constexpr (Config::kStreamK) init_stream_k<Config>(state.stream_k);
  ptx::fence_mbarrier_init();
}

/// Computes a stream-K block's slices of K.
template <class Config, class Scheduler>
__device__ __forceinline__ void run_slices(const KernelArguments& p, Mainloop<Config>& mainloop,
                                           Scheduler& scheduler, WorkTile& work, bool more,
                                           StreamKState& state, int warpgroup) {
  int done = 0;
  for (; more; more = scheduler.next(work)) {
    typename Mainloop<Config>::Sums d = {};
    mainloop.template run<Config::kWarpgroupM, false>(d);
    mainloop.release_last();
    stream_k_store<Config>(p, scheduler.block_of_tile(), d, state.stored[done++], warpgroup);
  }
}

/// The code of the consumer warpgroups: mainloop and epilogue, tile by tile.
template <class Config, class Scheduler>
__device__ __forceinline__ void consume(const KernelArguments& p, const CUtensorMap& out_map,
                                        std::uint8_t* memory, const Ring& ring, const KRange& range,
                                        const PartialSlot<Config>& partial, bool is_stream_k,
                                        Scheduler& scheduler, SharedState<Config::kStages>& state,
                                        int warpgroup) {
  const Place<Config> place(warpgroup);
  Mainloop<Config> mainloop(p, ring, range, partial, place);
  Epilogue<Config> epilogue(p, out_map, memory, ring.x, range.rank, state.split_k, place);
  if (p.split_k > 1) ptx::barrier_cluster_wait();
  ptx::griddepcontrol_wait();  // the previous kernel may write factors and biases
  WorkTile work;
  bool more = scheduler.next(work);
  mainloop.stagger(scheduler.has_next());
  if constexpr (Config::kStreamK)
    if (is_stream_k)
      return run_slices(p, mainloop, scheduler, work, more, state.stream_k, warpgroup);
  for (; more; more = scheduler.next(work)) {
    int rows = Config::kTileM;
    if constexpr (Config::kShapes > 1) {
      // The shuffle tells the compiler that the value is the same for all lanes.
      rows = __shfl_sync(~0u, min(work.m_end - work.m, Config::kTileM), 0);
      work.m_end = work.m + rows;
    }
    if constexpr (Config::kMGroups == 2) work.m += place.m_group() * Config::kWarpgroupM;
    const PrefetchedFactors factors(
        p, work.group,
        work.n_tile * Config::kTileN + static_cast<int>(threadIdx.x) % Config::kTileN);
    typename Mainloop<Config>::Sums d = {};
    dispatch_m_shape<Config>(rows, [&](auto shape) {
      mainloop.template run<decltype(shape)::value, Config::kStreamK>(d);
    });
    factors.use();
    mainloop.release_last();
    if constexpr (Config::kStreamK) {
      ptx::mbarrier_wait_parity(ring.full + partial.slot() * 8, partial.phase());
      stream_k_add(d, ring.x + partial.slot() * Config::kXBytes, warpgroup);
    }
    if (epilogue.store(work, d)) return;
  }
  epilogue.finish();
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    wgmma_gemm_kernel(const __grid_constant__ CUtensorMap x_map,
                      const __grid_constant__ CUtensorMap out_map,
                      const __grid_constant__ KernelArguments p) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto& state = *reinterpret_cast<SharedState<Config::kStages>*>(memory + Config::kStateOffset);
  const Ring ring = Ring::of<Config>(ptx::cvta_shared(memory), state.full, state.empty);
  // The shuffle makes the value uniform for the compiler, so that descriptors stay in uniform
  // registers.
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);

  TileScheduler<Config, true> scheduler(p, state.scheduler);
  const KRange range = k_range_of<Config>(p);
  const bool is_stream_k = Config::kStreamK && is_stream_k_block(p);
  const PartialSlot<Config> partial(range.last - range.first, is_stream_k);
  Producer<Config> producer(p, x_map, ring, range, partial, state.stream_k);
  if (threadIdx.x == 0) init_barriers<Config>(p, ring, state);
  if (threadIdx.x == Config::kConsumers) {
    ptx::prefetch_tensormap(&x_map);
    for (int i = 0; i < Config::kStages; ++i) ptx::mbarrier_init(ring.full + i * 8, 1);
    ptx::fence_mbarrier_init();
    producer.prefetch(scheduler);
  }
  if (p.split_k > 1) {
    __syncwarp();
    ptx::barrier_cluster_arrive();
  }
  if (p.ends != nullptr && !p.ends_settled) ptx::griddepcontrol_wait();
  scheduler.count();

  if (warpgroup == Config::kWarpgroups) {
    if constexpr (Config::kOwnsMultiprocessor) ptx::setmaxnreg_dec<Config::kProducerRegisters>();
    if constexpr (Config::kStreamK) {
      // The branch is for a whole warp, so that ptxas keeps the other branch's counters in uniform
      // registers.
      if (__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0) == Config::kConsumers / 32 + 1) {
        if (threadIdx.x % 32 == 0) {
          if (is_stream_k)
            stream_k_signal<Config>(p, state.stream_k);
          else
            stream_k_load<Config>(p, partial, state.stream_k, ring);
        }
        return;
      }
    }
    if (threadIdx.x == Config::kConsumers) producer.run(scheduler);
    return;
  }
  if constexpr (Config::kOwnsMultiprocessor) ptx::setmaxnreg_inc<Config::kConsumerRegisters>();
  consume<Config>(p, out_map, memory, ring, range, partial, is_stream_k, scheduler, state,
                  warpgroup);
}

}  // namespace nvfp4::cuda
