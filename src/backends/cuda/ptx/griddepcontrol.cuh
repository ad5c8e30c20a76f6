#pragma once

/// Programmatic dependent launch: the next kernel of a stream may start while this one runs. A
/// kernel that allows it must wait first, so that earlier work is complete for the next kernel, too
/// (source: PTX ISA, "griddepcontrol"). Before sm_90 kernels of a stream never overlap, and the
/// functions do nothing.
namespace nvfp4::cuda::ptx {

/// Allows the next kernel to start. This kernel's writes are visible to it after its wait.
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
