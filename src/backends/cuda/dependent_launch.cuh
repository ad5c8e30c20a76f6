#pragma once

#include "backends/cuda/ptx/griddepcontrol.cuh"
#include "backends/cuda/runtime.h"

/// Programmatic dependent launch, see ptx/griddepcontrol.cuh.
namespace nvfp4::cuda {

/// The launch parameters of a kernel.
struct Launch {
  dim3 blocks, threads;
  cudaStream_t stream;
  std::size_t shared_bytes = 0;
};

/// Launches a kernel that may start before the previous one has ended. The kernel itself must wait.
template <class... Parameters, class... Arguments>
void launch_dependent(const char* op, const Launch& where, void (*kernel)(Parameters...),
                      const Arguments&... arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = where.blocks;
  config.blockDim = where.threads;
  config.dynamicSmemBytes = where.shared_bytes;
  config.stream = where.stream;
  config.attrs = &attribute;
  config.numAttrs = has_dependent_launch() ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), op);
}

}  // namespace nvfp4::cuda
