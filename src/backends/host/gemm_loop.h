#pragma once

#include <cstdint>
#include <span>

#include "backends/backend.h"

namespace nvfp4 {

/// One product of a call, validated.
struct GemmJob {
  Activations x;
  PanelMatrix w;
  GemmOutput output;
};

/// How one product is cut into tasks and their inner loops.
struct GemmTiling {
  bool direct;          ///< weights straight from the packed bytes, all of K at once
  std::int64_t panels;  ///< of weights, in a task
  std::int64_t rows;    ///< of x, in a task; a multiple of the kernel's strip
  std::int64_t depth;   ///< blocks that are decoded at a time; a multiple of kGroupBlocks
  bool operator==(const GemmTiling&) const = default;
};

/// Never changes a sum, unless kernels.direct.differs and not batch_invariant.
GemmTiling choose_gemm_tiling(const GemmKernels& kernels, std::int64_t m, std::int64_t n,
                              std::int64_t blocks, int threads, bool batch_invariant);

/// All products, on the threads of the pool.
void run_products(const Backend& backend, const GemmKernels& kernels, std::span<const GemmJob> jobs,
                  bool batch_invariant);

}  // namespace nvfp4
