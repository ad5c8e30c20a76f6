#pragma once

#include "backends/cuda/gemm/sm90/pipeline.cuh"
#include "backends/cuda/gemm/sm90/stream_k.cuh"
#include "backends/cuda/gemm/sm90/wgmma_config.cuh"

/// The producer: one thread that fills the ring.
namespace nvfp4::cuda {

template <class Config>
class Producer {
 public:
  __device__ __forceinline__ Producer(const KernelArguments& p, const CUtensorMap& x_map,
                                      const Ring& ring, const KRange& range,
                                      const PartialSlot<Config>& partial, StreamKState& stream_k)
      : p_(p),
        ring_(ring),
        range_(range),
        partial_(partial),
        stream_k_(stream_k),
        loader_(p, x_map, ring) {
    const int room =
        Config::kStages - (Config::kStreamK && partial.first < Config::kStages ? 1 : 0);
    prefetch_ = min(range.last - range.first, min(room, p.prefetch_stages));
  }

  /// Weights do not depend on the previous kernel. Everything that it may have written is read
  /// later.
  template <class Scheduler>
  __device__ __forceinline__ void prefetch(const Scheduler& scheduler) {
    if (WorkTile work; p_.ends == nullptr && scheduler.first(work)) {
      loader_.begin(work);
#pragma unroll 1
      for (int i = 0; i < prefetch_; ++i) loader_.load_weights(slot_of(i), range_.first + i);
    }
  }

  /// Fills the ring for all tiles of the block.
  template <class Scheduler>
  __device__ __forceinline__ void run(Scheduler& scheduler) {
    int slot = 0;
    std::uint32_t phase = 1;
    const auto next_slot = [&] {
      if (++slot == Config::kStages) {
        slot = 0;
        phase ^= 1;
      }
    };
    bool waited = false;
    const bool dependents_early = Config::kBlocksPerSm == 2 && p_.ends == nullptr;
    for (WorkTile work; scheduler.next(work);) {
      loader_.begin(work);
      int i = range_.first;
      if (!waited) {
        waited = true;
        wait_for_kernel_before(dependents_early);
#pragma unroll 1
        for (; slot < prefetch_; ++slot) loader_.load_x(slot_of(slot), i++);
        if (dependents_early && p_.launch_dependents_step > 0 &&
            p_.launch_dependents_step < prefetch_)
          ptx::griddepcontrol_launch_dependents();
        if (Config::kStreamK && prefetch_ > partial_.first) {
          ++slot;
          ptx::mbarrier_arrive(ptx::cvta_shared(&stream_k_.free));
        }
        if (slot == Config::kStages) {
          slot = 0;
          phase ^= 1;
        }
      }
      for (; i < range_.last; ++i) {
        if (dependents_early && i - range_.first == p_.launch_dependents_step)
          ptx::griddepcontrol_launch_dependents();
        if (Config::kStreamK && i - range_.first == partial_.first) {
          ptx::mbarrier_wait_parity(ring_.empty + slot * 8, phase);
          ptx::mbarrier_arrive(ptx::cvta_shared(&stream_k_.free));
          next_slot();
        }
        ptx::mbarrier_wait_parity(ring_.empty + slot * 8, phase);
        loader_.load_weights(slot, i);
        loader_.load_x(slot, i);
        next_slot();
      }
    }
    if (!waited) ptx::griddepcontrol_wait();
    // The memory becomes idle: the next kernel may load its weights now, at the latest.
    ptx::griddepcontrol_launch_dependents();
  }

 private:
  __device__ __forceinline__ int slot_of(int stage) const {
    return Config::kStreamK ? partial_.of_stage(stage) : stage;
  }
  /// With `ends`, the first weights are known only now.
  __device__ __forceinline__ void wait_for_kernel_before(bool dependents_early) {
    if (p_.ends != nullptr)
#pragma unroll 1
      for (int i = 0; i < prefetch_; ++i) loader_.load_weights(i, range_.first + i);
    ptx::griddepcontrol_wait();
    // The blocks of the next kernel load weights where they fit.
    if (dependents_early && p_.launch_dependents_step == 0) ptx::griddepcontrol_launch_dependents();
  }

  const KernelArguments& p_;
  const Ring& ring_;
  const KRange& range_;
  const PartialSlot<Config>& partial_;
  StreamKState& stream_k_;
  StageLoader<Config> loader_;
  int prefetch_;  ///< in stages
};

}  // namespace nvfp4::cuda
