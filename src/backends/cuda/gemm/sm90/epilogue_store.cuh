#pragma once

#include "backends/cuda/gemm/sm90/epilogue.cuh"
#include "backends/cuda/gemm/sm90/epilogue_split_k.cuh"
#include "backends/cuda/gemm/sm90/epilogue_swiglu.cuh"
#include "backends/cuda/gemm/sm90/mainloop.cuh"

/// Selects the epilogue of a tile.
namespace nvfp4::cuda {

template <class Config>
class Epilogue {
 public:
  using Sums = typename Mainloop<Config>::Sums;

  __device__ __forceinline__ Epilogue(const KernelArguments& p, const CUtensorMap& out_map,
                                      std::uint8_t* memory, std::uint32_t shared, int rank,
                                      SplitKState& split_k, const Place<Config>& place)
      : p_(p),
        out_map_(out_map),
        memory_(memory),
        shared_(shared),
        rank_(rank),
        split_k_(split_k),
        place_(place) {}

  /// Returns true if the tile is the only one of the block.
  __device__ __forceinline__ bool store(const WorkTile& work, const Sums& d) {
    if (!Config::kSingleTile && p_.split_k == 1) {
      store_whole_sums(work, d);
      return false;
    }
    if constexpr (Config::kMGroups == 1)
      epilogue_split_k<Config>(p_, work, d, memory_, rank_, split_k_, place_.n_group(),
                               place_.k_group(), place_.warp, place_.lane);
    return true;
  }
  /// Waits until TMA has read the slab. The end of the kernel waits for the writes.
  __device__ __forceinline__ void finish() const {
    if constexpr (Config::kTmaStore) wait_for_slab();
  }

 private:
  __device__ __forceinline__ void wait_for_slab() const {
    if (place_.lane == 0 && (place_.warp == 0 || Config::kTmaStoreBoxes))
      ptx::cp_async_bulk_wait_group_read();
  }
  __device__ __forceinline__ void store_whole_sums(const WorkTile& work, const Sums& d) {
    // Both are computed again: as members they took registers that three warpgroups do not have,
    // and ptxas serialized wgmma.
    const int warp = static_cast<int>(threadIdx.x / 32 % 4);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warpgroup = place_.warpgroup;
    // Each warpgroup has its own slab, because warpgroups are not in step.
    const int slab = Config::kSlabOffset + warpgroup * Config::kSlabBytes;
    if constexpr (Config::kTmaStore) {
      wait_for_slab();
      // A separate function for this condition also took more registers.
      if (p_.tma_store && (Config::kTmaStoreBoxes || work.m_end - work.m >= Config::kWarpgroupM) &&
          (row_tile_of<Config>(work, warpgroup) + 1) * 64 <= p_.n) {
        if constexpr (Config::kSwiglu)
          epilogue_swiglu_tma_store<Config>(p_, out_map_, work, d, shared_ + slab, warpgroup, warp,
                                            lane);
        else
          epilogue_tma_store<Config>(p_, out_map_, work, d, shared_ + slab, warpgroup, warp, lane);
        return;
      }
    }
    if constexpr (Config::kSwiglu)
      epilogue_swiglu<Config>(p_, work, d, memory_ + slab, warpgroup, warp, lane);
    else if (p_.wide_stores && p_.out_type != DType::f32)
      epilogue_store_16bit<Config>(p_, work, d, shared_ + slab, warpgroup, warp, lane);
    else
      epilogue_store_f32<Config>(p_, work, d, memory_ + slab, warpgroup, warp, lane);
  }

  const KernelArguments& p_;
  const CUtensorMap& out_map_;
  std::uint8_t* memory_;
  std::uint32_t shared_;
  int rank_;
  SplitKState& split_k_;
  const Place<Config>& place_;
};

}  // namespace nvfp4::cuda
