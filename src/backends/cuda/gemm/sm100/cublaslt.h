#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// What products of NVFP4 by NVFP4 need of cuBLASLt, which is loaded when the first is planned: no
/// build needs it. Names, values and layouts are of our own (source: documentation of cuBLAS 13);
/// tests/python/test_cublaslt.py compares them with NVIDIA's header where there is one.
namespace nvfp4::cuda::cublaslt {

// cudaDataType, cublasComputeType_t, cublasOperation_t, cublasStatus_t.
inline constexpr std::int32_t kReal32 = 0, kReal16 = 2, kRealBf16 = 14, kRealE2m1 = 33,
                              kCompute32 = 68, kTransposed = 1;
inline constexpr int kSuccess = 0, kNotSupported = 15;
// cublasLtMatmulMatrixScale_t: an E4M3 for 16 elements, in tiles of 128 rows by 4 (tiled_128x4).
inline constexpr std::int32_t kScaleOf16 = 1;
inline constexpr std::int32_t kFactorsOnDevice = 1;  // cublasLtPointerMode_t
// cublasLtMatmulDescAttributes_t.
inline constexpr int kPointerMode = 2, kTransposeA = 3, kScalesOfA = 17, kScalesOfB = 18,
                     kScaleModeA = 31, kScaleModeB = 32;
// cublasLtMatmulPreferenceAttributes_t.
inline constexpr int kMostWorkspace = 1;

struct Algorithm {
  std::uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

/// cublasLtGetVersion(): 130000 of 13.0.0. FP4 is there from 12.8 on.
inline constexpr std::size_t kOldestVersion = 120800;

/// Why no product can be made by the library of this version on a GPU, or nothing.
std::string why_unusable(std::size_t version, int compute_major);

/// The same of the library that there is: $NVFP4_CUBLASLT, else libcublasLt.so.13 or .12, loaded at
/// the first call.
std::string why_unusable();

/// out[m, n], row-major, = factor · x[m, k] · w[n, k]ᵀ, codes and scales in tiled_128x4, all on the
/// current device.
struct Product {
  std::int64_t n = 0, m = 0, k = 0;
  const void* w = nullptr;
  const void* w_scales = nullptr;
  const void* x = nullptr;
  std::int64_t x_stride = 0;  ///< elements from a row of x to the next
  const void* x_scales = nullptr;
  void* out = nullptr;
  std::int32_t out_type = kReal32;  ///< or kReal16, kRealBf16
  std::int64_t out_stride = 0;      ///< elements
  const float* factors = nullptr;   ///< on the device: the factor, then 0; null: 1
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  void* stream = nullptr;
  int device = 0;
};

/// Enqueues it. What the library's heuristic takes for a shape is asked for once on each device.
/// Throws UnsupportedError if it has nothing for it, DeviceError.
void multiply(const Product& product);

}  // namespace nvfp4::cuda::cublaslt
