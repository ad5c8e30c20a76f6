#pragma once
namespace nvfp4::cuda::ptx {
inline void griddepcontrol_launch_dependents() {}
inline void griddepcontrol_wait() {}
}  // namespace nvfp4::cuda::ptx
