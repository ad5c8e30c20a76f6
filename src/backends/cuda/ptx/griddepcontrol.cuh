#pragma once

/// Programmatic dependent launch: the next kernel of a stream may start while this one runs. A
/// kernel that allows it waits first: what was before it is then complete for the next one too
/// (source: PTX ISA, "griddepcontrol"). Before sm_90 kernels of a stream never overlap: there it is
/// nothing.
namespace nvfp4::cuda::ptx {

/// From here on; what this kernel writes is there for the next one after its wait.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void griddepcontrol_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace nvfp4::cuda::ptx
