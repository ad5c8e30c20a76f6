#pragma once

#include <cstdint>
#include <limits>

#include "nvfp4/host_device.h"

/// One kernel with all that a launch fixes. Host and device.
namespace nvfp4::cuda {

inline constexpr int kAllStages = std::numeric_limits<int>::max();

/// In the problem's terms: m are rows of x, n rows of W, k columns of both. (The tensor cores get W
/// as their first operand, so that PTX calls n "M" and m "N".)
struct TileShape {
  int m = 0, n = 0, k = 0;  ///< k: of a stage of the pipeline
  bool operator==(const TileShape&) const = default;
};

struct KernelConfig {
  int m = 0;        ///< of the tile; 0: none
  int n = 0;        ///< of the tile
  int split_k = 1;  ///< blocks of a cluster that share K
  /// Stages before the next kernel of the stream may bring its weights, where both have room on a
  /// multiprocessor (griddepcontrol.launch_dependents): the memory is busy when this one's copies
  /// end, and not sooner.
  int launch_dependents_step = 0;
  /// Stages of weights that a block brings while the kernel before still runs: they take the memory
  /// from it. Warps that bring the weights themselves bring all of theirs.
  int prefetch_stages = kAllStages;
  /// Stages that stream-K blocks take of each block's: blocks for which there is room, but no tile.
  int stream_k_steps = 0;
  bool operator==(const KernelConfig&) const = default;
};

/// How a kernel multiplies.
enum class MainloopKind {
  wgmma,     ///< a warp brings tiles by TMA, warpgroups multiply
  small_m,   ///< mma.sync; warps bring their weights themselves, by cp.async
  routed,    ///< the same, of one row of x, with the weights that a routing names
  mma,       ///< mma.sync; the threads of a block bring its tiles together, by cp.async
  cublaslt,  ///< the library's choice
};

/// A line of an architecture's list of kernels.
struct KernelEntry {
  MainloopKind mainloop;
  int m, n;
  int split_k;  ///< a mask: those powers of two that there are
  /// Has a second kernel, whose blocks leave room for the next one's: with launch_dependents_step.
  bool dependents_early = false;
  bool stream_k = false;  ///< has another one with stream-K blocks
};

}  // namespace nvfp4::cuda
