#pragma once

#include "backends/cuda/runtime.h"

/// Programmatic dependent launch: the next kernel of a stream may start while this one runs. A
/// kernel that allows it waits first: what was before it is then complete for the next one too.
namespace nvfp4::cuda {

/// From here on; what this kernel writes is there for the next one after its wait.
__device__ __forceinline__ void allow_next_kernel() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void wait_for_kernel_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// Where a kernel runs.
struct Launch {
  dim3 blocks, threads;
  cudaStream_t stream;
  std::size_t shared_bytes = 0;
};

/// Of a kernel that may start before the one before it has ended, and waits for it.
template <class... Parameters, class... Arguments>
void launch_early(const char* op, const Launch& where, void (*kernel)(Parameters...),
                  const Arguments&... arguments) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = where.blocks;
  config.blockDim = where.threads;
  config.dynamicSmemBytes = where.shared_bytes;
  config.stream = where.stream;
  config.attrs = &early;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), op);
}

}  // namespace nvfp4::cuda
