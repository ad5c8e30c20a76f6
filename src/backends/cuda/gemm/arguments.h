#pragma once

#include <cstdint>

#include "backends/cuda/device/globals.cuh"
#include "backends/cuda/gemm/kernel_config.h"
#include "nvfp4/activation.h"
#include "nvfp4/layout.h"
#include "nvfp4/matrix.h"

/// What the kernels are told. Host and device.
namespace nvfp4::cuda {

/// Cache policies as createpolicy.fractional.L2::evict_… makes them (source: CUTLASS,
/// cute/arch/copy_sm90_desc.hpp): what is read once leaves the L2 cache before what was there.
inline constexpr std::uint64_t kEvictNormal = 0x1000000000000000;
inline constexpr std::uint64_t kEvictFirst = 0x12F0000000000000;

struct GemmArguments {
  // W: [groups][n_tiles][chunks] tiles of fragments_64x64
  const std::uint8_t* weights = nullptr;
  std::int64_t group_bytes = 0;
  int n_tiles = 0;  ///< of 64
  int chunks = 0;   ///< of 64 columns
  int n = 0;

  const float* w_global = nullptr;
  bool w_global_per_row = false;
  const float* x_global = nullptr;  ///< null: 1
  bool x_global_per_row = false;
  const float* alpha = nullptr;  ///< null: 1; one for each group
  float factor = 1.0f;
  const float* bias = nullptr;  ///< null, or groups · n

  const void* x = nullptr;  ///< what its tensor map describes, too
  std::int64_t x_stride = 0;
  int k = 0;

  // Rows of x and out: group g has rows [start_g, end_g), or each row of out the group that a
  // routing names.
  int groups = 1;
  const std::int32_t* starts = nullptr;  ///< null: the end of the group before
  const std::int32_t* ends = nullptr;    ///< null: every group has all rows
  bool ends_settled = false;             ///< the kernel before does not write ends and ids
  int m_begin = 0, m_end = 0;            ///< of the product of one group
  int m_total = 0;                       ///< rows of out
  bool x_whole_chunks = true;            ///< K % 64 == 0: a TMA copy brings several chunks
  bool x_of_group = false;               ///< group g reads slice g of x, else all the same
  int out_group_cols = 0;                ///< group g writes its columns from g · this on

  void* out = nullptr;
  DType out_type = DType::bf16;
  std::int64_t out_stride = 0;
  bool wide_stores = false;  ///< rows of out allow 16 bytes at a time

  // SwiGLU of gate and up, whose rows are packed as gate_up_row() says: out is [rows, n / 2].
  float limit = 0;
  int interleave = 0;
  // Its result is quantized if there are codes; `out` is not used then.
  std::uint8_t* codes = nullptr;  ///< [rows, n / 4]
  std::uint8_t* scales = nullptr;
  ScaleLayout scale_layout = ScaleLayout::linear;
  Globals out_globals;

  int split_k = 1;             ///< blocks of a cluster that share K
  std::uint32_t sixteen = 16;  ///< see Shift16: a number that the compiler must not know
  int x_box = 0;               ///< rows of x that are copied for a tile, see box_rows()
  bool tma_store = false;      ///< out has a tensor map: see epilogue_tma_store()
  int out_box = 0;             ///< see out_box_rows()
  std::uint64_t weights_policy = kEvictNormal;  ///< of their copies in the L2 cache
  int launch_dependents_step = 0;               ///< see KernelConfig
  int prefetch_stages = kAllStages;

  // Last: before the rest they cost other products up to 6 % (what a kernel reads first is theirs).
  Routing routing = {};   ///< without ids: there is none
  int rows_of_token = 1;  ///< of out for a row of x, with a routing

  // Blocks [0, stream_k_blocks) take slices of K of all others, see stream_k.cuh.
  int stream_k_blocks = 0;
  int stream_k_steps = 0;                   ///< stages of a slice
  std::uint32_t* stream_k_flags = nullptr;  ///< zeros, one for each slice; or see sm80/split_k.cuh
  float* stream_k_sums = nullptr;
};

}  // namespace nvfp4::cuda
