#pragma once

#include <cstdint>
#include <span>

#include "backends/backend.h"

namespace nvfp4 {

/// One validated GEMM of a call.
struct GemmJob {
  Activations x;
  PanelMatrix w;
  GemmOutput output;
};

/// The division of a GEMM into tasks and inner loops.
struct GemmTiling {
  bool direct;          ///< kernels read packed bytes directly, all of K at once
  std::int64_t panels;  ///< panels of weights in a task
  std::int64_t rows;    ///< rows of x in a task; a multiple of the kernel's strip
  std::int64_t depth;   ///< blocks dequantized at a time; a multiple of kGroupBlocks
  bool operator==(const GemmTiling&) const = default;
};

/// Chooses a tiling. It never changes a sum, unless kernels.direct.differs and not batch_invariant.
GemmTiling choose_gemm_tiling(const GemmKernels& kernels, std::int64_t m, std::int64_t n,
                              std::int64_t blocks, int threads, bool batch_invariant);

/// Runs all GEMMs on the threads of the pool.
void run_gemms(const Backend& backend, const GemmKernels& kernels, std::span<const GemmJob> jobs,
               bool batch_invariant);

}  // namespace nvfp4
