#pragma once

/// The features of the compilation target. FP4 and block-scaled instructions exist only in
/// architecture- or family-specific targets; a plain target would silently emulate them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000 && !defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && \
    !defined(__CUDA_ARCH_SPECIFIC__)
#error "build for 100f or 120f (or an 'a' target); a plain target has no FP4 instructions"
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define NVFP4_NATIVE_FP4 1
#else
#define NVFP4_NATIVE_FP4 0
#endif
