#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// The parts of cuBLASLt that GEMMs of NVFP4 by NVFP4 need. It is loaded when the first one is
/// planned; no build needs it. Names, values and layouts are declared here (source: documentation
/// of cuBLAS 13). tests/python/test_cublaslt.py compares them with NVIDIA's header if there is one.
namespace nvfp4::cuda::cublaslt {

// cudaDataType, cublasComputeType_t, cublasOperation_t, cublasStatus_t.
inline constexpr std::int32_t kReal32 = 0, kReal16 = 2, kRealBf16 = 14, kRealE2m1 = 33,
                              kCompute32 = 68, kTransposed = 1;
inline constexpr int kSuccess = 0, kNotSupported = 15;
// cublasLtMatmulMatrixScale_t: an E4M3 scale for 16 elements, in tiles of 128 rows by 4
// (tiled_128x4).
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

/// The oldest version with FP4, 12.8. cublasLtGetVersion() returns 130000 for 13.0.0.
inline constexpr std::size_t kOldestVersion = 120800;

/// Returns why this version of the library cannot be used on a GPU, or an empty string.
std::string why_unusable(std::size_t version, int compute_major);

/// Returns why the installed library cannot be used. The first call loads $NVFP4_CUBLASLT, or
/// libcublasLt.so.13 or .12.
std::string why_unusable();

/// The GEMM out[m, n] = factor · x[m, k] · w[n, k]ᵀ on the current device. out is row-major; scales
/// have the layout tiled_128x4.
struct Product {
  std::int64_t n = 0, m = 0, k = 0;
  const void* w = nullptr;
  const void* w_scales = nullptr;
  const void* x = nullptr;
  std::int64_t x_stride = 0;  ///< in elements
  const void* x_scales = nullptr;
  void* out = nullptr;
  std::int32_t out_type = kReal32;  ///< or kReal16, kRealBf16
  std::int64_t out_stride = 0;      ///< in elements
  const float* factors = nullptr;   ///< on the device: the factor, then 0; null: 1
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  void* stream = nullptr;
  int device = 0;
};

/// Enqueues the GEMM. The library's heuristic is called once for each shape and device. Throws
/// UnsupportedError if the library has no kernel, or DeviceError.
void multiply(const Product& product);

}  // namespace nvfp4::cuda::cublaslt
