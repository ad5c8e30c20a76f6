#pragma once

#include <cstdint>
#include <string>

#include "backends/row_job.h"
#include "nvfp4/quantize.h"

/// The operations of a device other than the CPU, except GEMM (gemm_backend.h). They are enqueued
/// on a stream. Arguments are validated and on `device`, unless marked host.
namespace nvfp4 {

/// Quantization along rows or columns with any quantizer.
struct DeviceQuantizeJob {
  MatrixView x;
  QuantizedSpan out;
  Quantizer quantizer = Quantizer::max;
  GlobalScales global;             ///< empty: measured
  const float* weights = nullptr;  ///< K weights of the caller, or null
  MatrixView hessian;              ///< FP32 [K, block], or without data
  Stream stream;
};

/// A GramFactor whose arrays are on the device, aligned to 16 bytes.
struct DeviceGramFactor {
  std::int64_t depth = 0;
  float damping = 0;
  const float *gram = nullptr, *upper = nullptr, *reciprocal = nullptr;
  const float *block_inverse = nullptr, *block_upper = nullptr, *block_reciprocal = nullptr;
  const std::int32_t* order = nullptr;
};

/// A GptqJob with rows on the device.
struct DeviceGptqJob {
  DeviceGramFactor gram;
  MatrixView x;  ///< any type
  float divisor = 1;
  int sweeps = 0;
  const std::uint8_t *mse_codes = nullptr, *mse_scales = nullptr;
  std::uint8_t *codes = nullptr, *scales = nullptr;
  std::uint8_t* chosen = nullptr;  ///< [rows]
  double* errors = nullptr;        ///< [rows, 4], of each candidate; see GptqJob
  void* workspace = nullptr;       ///< gptq_workspace() bytes, aligned to 256
  Stream stream;
};

/// A library of the device that factors matrices in FP64. It may be missing.
struct DeviceSolver {
  std::string (*why_unusable)();  ///< loads the library; empty if it can be used
  std::string (*name)();          ///< includes the version; the library must be usable
  /// Computes L⁻¹ with h = L Lᵀ. `h` [n, n] is on the host, row-major and symmetric; only the lower
  /// triangle is used, and L⁻¹ replaces it. Returns false and leaves `h` unchanged if it is not
  /// positive definite. Throws UnsupportedError if there is no library, or DeviceError.
  bool (*invert_lower)(double* h, std::int64_t n, Device device);
};

struct DeviceBackend {
  void (*quantize)(const DeviceQuantizeJob& job);
  void (*quantize_rows)(const RowQuantizeJob& job);
  void (*store_rows)(const RowJob& job, const MatrixSpan& y, Stream stream);
  /// Dequantizes. Without q.global_scale the global scale is 1.
  void (*dequantize)(const QuantizedView& q, const MatrixSpan& out, Stream stream);
  /// Computes a part for each group of blocks, numbered as in quantizers/error_sum.h.
  void (*error_parts)(const MatrixView& x, const QuantizedView& q, QuantizationError* parts,
                      Stream stream);
  void (*amax)(const MatrixView& x, float* out, GlobalScope scope, BlockAxis axis, Stream stream);
  void (*global_scales)(const float* amaxes, GlobalScale* out, std::int64_t count, Quantizer q,
                        Device device, Stream stream);
  void (*gram)(const MatrixView& x, const MatrixSpan& out, bool accumulate, Stream stream);
  /// Quantizes with the bits of quantizers/gptq.h.
  void (*gptq)(const DeviceGptqJob& job);
  /// Returns the bytes for this number of rows.
  std::int64_t (*gptq_workspace)(std::int64_t rows, std::int64_t depth);
  void (*relayout)(const std::uint8_t* in, ScaleLayout in_layout, std::uint8_t* out,
                   ScaleLayout out_layout, std::int64_t rows, std::int64_t blocks, Device device,
                   Stream stream);
  const DeviceSolver* (*solver)();  ///< null: none
  /// Writes codes · block scales of the quantizer max, which are exact in BF16. `multiplier` is on
  /// the device; out is dense and aligned to 16 bytes.
  void (*quantize_values)(const MatrixView& x, const float* multiplier, const MatrixSpan& out,
                          Stream stream);
};

/// Returns the operations of a device. Throws UnsupportedError with the reason if `device` cannot
/// be used.
const DeviceBackend& device_backend(Device device);

}  // namespace nvfp4
