#pragma once

#include <cstdint>
#include <limits>

#include "nvfp4/host_device.h"

/// The configuration of a kernel launch. Host and device.
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

/// A row of an architecture's list of kernels.
struct KernelEntry {
  MainloopKind mainloop;
  int m, n;
  int split_k;  ///< bit mask of the available powers of two
  /// True if a variant leaves room for the next kernel's blocks; used with launch_dependents_step.
  bool dependents_early = false;
  bool stream_k = false;  ///< a variant with stream-K blocks exists
};

}  // namespace nvfp4::cuda
