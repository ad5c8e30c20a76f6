#pragma once

#include <cstdint>

#include "backends/cuda/device/globals.cuh"
#include "backends/cuda/gemm/kernel_config.h"
#include "nvfp4/activation.h"
#include "nvfp4/layout.h"
#include "nvfp4/matrix.h"

/// The arguments of the GEMM kernels. Host and device.
namespace nvfp4::cuda {

/// Cache policies as created by createpolicy.fractional.L2::evict_… (source: CUTLASS,
/// cute/arch/copy_sm90_desc.hpp). The L2 cache evicts evict_first data before other data.
inline constexpr std::uint64_t kEvictNormal = 0x1000000000000000;
inline constexpr std::uint64_t kEvictFirst = 0x12F0000000000000;

struct KernelArguments {
  // W: [groups][n_tiles][chunks] tiles of fragments_64x64
  const std::uint8_t* weights = nullptr;
  std::int64_t group_bytes = 0;
  int n_tiles = 0;  ///< tiles of 64 rows
  int chunks = 0;   ///< tiles of 64 columns
  int n = 0;

  const float* w_global = nullptr;
  bool w_global_per_row = false;
  const float* x_global = nullptr;  ///< null: 1
  bool x_global_per_row = false;
  const float* alpha = nullptr;  ///< one for each group; null: 1
  float factor = 1.0f;
  const float* bias = nullptr;  ///< groups · n values, or null

  const void* x = nullptr;  ///< the tensor map describes the same matrix
  std::int64_t x_stride = 0;
  int k = 0;

  // Rows of x and out: group g has rows [start_g, end_g). With a routing, each row of out has the
  // group that the routing names.
  int groups = 1;
  const std::int32_t* starts = nullptr;  ///< null: a group starts at the end of the previous one
  const std::int32_t* ends = nullptr;    ///< null: every group has all rows
  bool ends_settled = false;             ///< the previous kernel does not write ends and ids
  int m_begin = 0, m_end = 0;            ///< range of rows of this launch
  int m_total = 0;                       ///< rows of out
  bool x_whole_chunks = true;            ///< K % 64 == 0: one TMA copy fetches several chunks
  bool x_of_group = false;  ///< group g reads slice g of x; otherwise all groups read the same x
  int out_group_cols = 0;   ///< offset in columns of out between the results of groups

  void* out = nullptr;
  DType out_type = DType::bf16;
  std::int64_t out_stride = 0;
  bool wide_stores = false;  ///< rows of out allow 16-byte stores

  // SwiGLU of gate and up, packed in the order of gate_up_row(). out is [rows, n / 2].
  float limit = 0;
  int interleave = 0;
  // The result is quantized if `codes` is set; `out` is unused then.
  std::uint8_t* codes = nullptr;  ///< [rows, n / 4]
  std::uint8_t* scales = nullptr;
  ScaleLayout scale_layout = ScaleLayout::linear;
  Globals out_globals;

  int split_k = 1;             ///< thread blocks of a cluster that share K
  std::uint32_t sixteen = 16;  ///< see Shift16: the compiler must not know this value
  int x_box = 0;               ///< rows of x that are copied for a tile, see box_rows()
  bool tma_store = false;      ///< out has a tensor map, see epilogue_tma_store()
  int out_box = 0;             ///< see out_box_rows()
  std::uint64_t weights_policy = kEvictNormal;  ///< L2 cache policy of copies of W
  int launch_dependents_step = 0;               ///< see KernelConfig
  int prefetch_stages = kAllStages;

  // These members are last: kernels read the first ones early, and this order is up to 6 % faster.
  Routing routing = {};   ///< unused if its ids are null
  int rows_of_token = 1;  ///< rows of out for each row of x, with a routing

  // Blocks [0, stream_k_blocks) compute slices of K of all other blocks, see stream_k.cuh.
  int stream_k_blocks = 0;
  int stream_k_steps = 0;  ///< stages of a slice
  /// Zeros: one for each slice, or for each tile in sm80/split_k.cuh.
  std::uint32_t* stream_k_flags = nullptr;
  float* stream_k_sums = nullptr;
};

}  // namespace nvfp4::cuda
