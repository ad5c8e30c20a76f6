#pragma once

/// Programmatic dependent launch: the next kernel of a stream may start while this one runs. A
/// kernel that allows it waits first: what was before it is then complete for the next one too
/// (source: PTX ISA, "griddepcontrol").
namespace nvfp4::cuda::ptx {

/// From here on; what this kernel writes is there for the next one after its wait.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void griddepcontrol_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace nvfp4::cuda::ptx
