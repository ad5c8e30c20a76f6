#pragma once

#include <bit>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "backends/cuda/gemm/m_shapes.h"
#include "nvfp4/host_device.h"

/// Kernels, and the configuration of a launch. Host and device.
namespace nvfp4::cuda {

inline constexpr int kAllStages = std::numeric_limits<int>::max();

/// The shape of a tile: m rows of x, n rows of W, k columns of both. The tensor cores take W as
/// their first operand, so PTX calls n "M" and m "N".
struct TileShape {
  int m = 0, n = 0, k = 0;  ///< k: columns of a pipeline stage
  bool operator==(const TileShape&) const = default;
};

struct KernelConfig {
  int m = 0;        ///< M of the tile; 0: no kernel
  int n = 0;        ///< N of the tile
  int split_k = 1;  ///< thread blocks of a cluster that share K
  /// Number of stages before the next kernel may load its weights
  /// (griddepcontrol.launch_dependents), if both kernels fit on a multiprocessor. Its loads should
  /// start when this kernel's copies end, and no sooner.
  int launch_dependents_step = 0;
  /// Number of stages of weights that a block loads while the previous kernel still runs. They take
  /// bandwidth from that kernel. Warps that load their own weights always load all stages.
  int prefetch_stages = kAllStages;
  /// Number of stages that stream-K blocks take from each block. Stream-K blocks are resident
  /// blocks without a tile.
  int stream_k_steps = 0;
  bool operator==(const KernelConfig&) const = default;
};

/// The way a kernel multiplies.
enum class MainloopKind {
  wgmma,     ///< a warp loads tiles by TMA; warpgroups multiply
  small_m,   ///< mma.sync; warps load their own weights by cp.async
  routed,    ///< small_m for one row of x; a routing names the weights
  mma,       ///< mma.sync; the threads of a block load tiles together by cp.async
  cublaslt,  ///< chosen by cuBLASLt
};

/// The division of a tile among the warps of a block.
struct Warps {
  int m = 1, n = 1;  ///< parts of the rows of x, and of the rows of W
  int k = 1;         ///< parts of K: interleaved chunks, added at the end
};

/// The cost of a kernel on an H200 in microseconds. Each architecture's cost_model.cc adds its own
/// terms. No value is negative.
struct KernelCost {
  double start = 0;          ///< once for each launch
  double round = 0;          ///< for each round, in which every multiprocessor has a block
  double step = 0;           ///< for each stage of a round
  double megabyte = 0;       ///< for each megabyte of weights
  double wave = 0;           ///< for each wave of blocks after the first
  double stage = 0;          ///< for each stage, however many rounds there are
  double split = 0;          ///< for split-K
  double split_element = 0;  ///< for a million sums of split-K
};

/// A kernel: a row of its architecture's list. Its name is made of the tile and the stage.
struct Kernel {
  MainloopKind mainloop;
  int m, n;
  int split_k = 1;  ///< bit mask of the available powers of two
  // Kernels by mma.sync, whose threads load tiles together.
  Warps warps = {};
  int stages = 0;  ///< pipeline stages; each has a chunk of 64 columns for each part of K
  int blocks = 1;  ///< blocks on a multiprocessor for which registers must suffice
  // Kernels by wgmma, whose stages fill the shared memory.
  int stage_chunks = 0;  ///< chunks of 64 columns of a stage
  /// The same for a variant that leaves room for the next kernel's blocks. It is used with
  /// launch_dependents_step. 0: there is none.
  int early_stage_chunks = 0;
  bool stream_k = false;  ///< a variant with stream-K blocks exists
  MShapes m_shapes = {};  ///< values of M of blocks with several tiles; empty: m alone
  /// Costs of split-K by 1, 2, 4 and 8, or one cost for all.
  KernelCost costs[4] = {};
};

/// Returns the list's kernel with this tile and split, or null.
constexpr const Kernel* find_kernel(std::span<const Kernel> kernels, const KernelConfig& t) {
  if (t.split_k < 1 || !std::has_single_bit(static_cast<unsigned>(t.split_k))) return nullptr;
  for (const Kernel& k : kernels)
    if (k.m == t.m && k.n == t.n && (k.split_k & t.split_k) != 0) return &k;
  return nullptr;
}
/// Reports whether tile and split identify a kernel.
constexpr bool are_distinct(std::span<const Kernel> kernels) {
  for (const Kernel& k : kernels)
    for (int split = 1; split <= k.split_k; split *= 2)
      if ((k.split_k & split) != 0 && find_kernel(kernels, {k.m, k.n, split}) != &k) return false;
  return true;
}

/// Calls f with the index of a kernel, as a compile-time constant.
template <const auto& kKernels, class F>
void with_index(const Kernel* kernel, const F& f) {
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    ((kernel == &kKernels[kIndex] ? f(std::integral_constant<int, static_cast<int>(kIndex)>{})
                                  : void()),
     ...);
  }(std::make_index_sequence<std::size(kKernels)>{});
}

}  // namespace nvfp4::cuda
