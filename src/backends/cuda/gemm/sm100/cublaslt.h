#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// The parts of cuBLASLt that GEMMs of NVFP4 by NVFP4 and of FP8 by FP8 need. It is loaded when the
/// first one is planned; no build needs it. Names, values and layouts are declared here (source:
/// documentation of cuBLAS 13). tests/python/test_cublaslt.py compares them with NVIDIA's header if
/// there is one.
namespace nvfp4::cuda::cublaslt {

// cudaDataType, cublasComputeType_t, cublasOperation_t, cublasStatus_t.
inline constexpr std::int32_t kReal32 = 0, kReal16 = 2, kRealBf16 = 14, kRealE4m3 = 28,
                              kRealE2m1 = 33, kCompute32 = 68, kTransposed = 1;
inline constexpr int kSuccess = 0, kNotSupported = 15;
// cublasLtMatmulMatrixScale_t: an E4M3 scale for 16 elements, in tiles of 128 rows by 4
// (tiled_128x4); an FP32 factor for each row.
inline constexpr std::int32_t kScaleOf16 = 1, kFactorOfRow = 3;
inline constexpr std::int32_t kFactorsOnDevice = 1;  // cublasLtPointerMode_t
inline constexpr std::uint32_t kAddBias = 4;         // cublasLtEpilogue_t
// cublasLtMatmulDescAttributes_t.
inline constexpr int kPointerMode = 2, kTransposeA = 3, kEpilogue = 7, kBias = 8, kScalesOfA = 17,
                     kScalesOfB = 18, kFastAccumulation = 25, kBiasType = 26, kScaleModeA = 31,
                     kScaleModeB = 32;
// cublasLtMatmulPreferenceAttributes_t.
inline constexpr int kMostWorkspace = 1, kAlignmentOfC = 7, kAlignmentOfD = 8;

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

/// The oldest versions with FP4, 12.8, and with factors of rows of FP8, 12.9. cublasLtGetVersion()
/// returns 130000 for 13.0.0.
inline constexpr std::size_t kOldestVersion = 120800, kOldestVersionOfFp8 = 120900;

/// Returns why this version of the library cannot be used, or an empty string.
std::string why_unusable(std::size_t version, std::size_t oldest);

/// Returns why the installed library cannot be used for NVFP4, and for FP8. The first call loads
/// $NVFP4_CUBLASLT, or libcublasLt.so.13 or .12.
std::string why_unusable();
std::string why_unusable_for_fp8();

/// The GEMM out[m, n] = factor · x[m, k] · w[n, k]ᵀ on the current device. out is row-major. Scales
/// of E2M1 have the layout tiled_128x4; those of E4M3 are FP32, one for each row.
struct Product {
  std::int32_t type = kRealE2m1;  ///< type of w and x, or kRealE4m3
  std::int64_t n = 0, m = 0, k = 0;
  /// If not 0: a number of rows whose algorithm is used where the library has none for m.
  std::int64_t planned_m = 0;
  const void* w = nullptr;
  const void* w_scales = nullptr;
  const void* x = nullptr;
  std::int64_t x_stride = 0;  ///< in elements
  const void* x_scales = nullptr;
  void* out = nullptr;
  std::int32_t out_type = kReal32;  ///< or kReal16, kRealBf16
  std::int64_t out_stride = 0;      ///< in elements
  const float* factors = nullptr;   ///< on the device: the factor, then 0; null: 1
  const void* bias = nullptr;       ///< N values of the type of out, or null
  bool fast_accumulation = false;   ///< E4M3: sums are not promoted to FP32 on the way
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  void* stream = nullptr;
  int device = 0;
};

/// Reports whether the library has the GEMM. Nothing is enqueued and no operand is read. It creates
/// the library's handle of a device, which allocates. Throws as multiply().
bool is_supported(const Product& product);

/// Enqueues the GEMM. The library's heuristic is called once for each shape and device. Throws
/// UnsupportedError if the library has no kernel, or DeviceError.
void multiply(const Product& product);

}  // namespace nvfp4::cuda::cublaslt
