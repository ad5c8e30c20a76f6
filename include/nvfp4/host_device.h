#pragma once

/// Marks a function that runs on the host and, if nvcc compiles it, on the device. Such a function
/// uses no `std::` function and no static array: nvcc would drop or reject them.
#if defined(__CUDACC__)
#define NVFP4_HD __host__ __device__
#else
#define NVFP4_HD
#endif
