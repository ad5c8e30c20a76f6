#pragma once

#include <cstdint>
#include <string>

#include "backends/row_job.h"
#include "nvfp4/quantize.h"

/// What a device other than the CPU provides, but for products (gemm_backend.h): whole operations,
/// enqueued on a stream. Arguments are validated and lie on `device`, but for pointers marked host.
namespace nvfp4 {

/// Plain quantization along rows or columns, with any quantizer.
struct DeviceQuantizeJob {
  MatrixView x;
  QuantizedSpan out;
  Quantizer quantizer = Quantizer::max;
  GlobalScales global;             ///< empty: measured
  const float* weights = nullptr;  ///< K of them, as the caller gave them, or null
  MatrixView hessian;              ///< FP32 [K, block] or without data
  Stream stream;
};

/// GramFactor, with every array on the device, 16-byte aligned.
struct DeviceGramFactor {
  std::int64_t depth = 0;
  float damping = 0;
  const float *gram = nullptr, *upper = nullptr, *reciprocal = nullptr;
  const float *block_inverse = nullptr, *block_upper = nullptr, *block_reciprocal = nullptr;
  const std::int32_t* order = nullptr;
};

/// GptqJob of rows on the device.
struct DeviceGptqJob {
  DeviceGramFactor gram;
  MatrixView x;  ///< any type
  float divisor = 1;
  int sweeps = 0;
  const std::uint8_t *mse_codes = nullptr, *mse_scales = nullptr;
  std::uint8_t *codes = nullptr, *scales = nullptr;
  std::uint8_t* chosen = nullptr;  ///< rows
  double* errors = nullptr;        ///< [rows, 4]: of each candidate, see GptqJob
  void* workspace = nullptr;       ///< of gptq_workspace(), 256-byte aligned
  Stream stream;
};

/// A library of the device that factors matrices in FP64. It may not be there.
struct DeviceSolver {
  std::string (*why_unusable)();  ///< empty if it can be used; loads it
  std::string (*name)();          ///< with its version, if it can be used
  /// `h` [n, n] on the host, row by row, symmetric, of which the lower triangle counts: the inverse
  /// of the lower triangular L with h = L Lᵀ takes its place there. False, and `h` is as it was, if
  /// it is not positive definite. Throws UnsupportedError if there is no library, DeviceError.
  bool (*invert_lower)(double* h, std::int64_t n, Device device);
};

struct DeviceBackend {
  void (*quantize)(const DeviceQuantizeJob& job);
  void (*quantize_rows)(const RowQuantizeJob& job);
  void (*store_rows)(const RowJob& job, const MatrixSpan& y, Stream stream);
  /// Without q.global_scale its value is 1.
  void (*dequantize)(const QuantizedView& q, const MatrixSpan& out, Stream stream);
  /// One part for each group of blocks, as quantizers/error_sum.h numbers them.
  void (*error_parts)(const MatrixView& x, const QuantizedView& q, QuantizationError* parts,
                      Stream stream);
  void (*amax)(const MatrixView& x, float* out, GlobalScope scope, BlockAxis axis, Stream stream);
  void (*global_scales)(const float* amaxes, GlobalScale* out, std::int64_t count, Quantizer q,
                        Device device, Stream stream);
  void (*gram)(const MatrixView& x, const MatrixSpan& out, bool accumulate, Stream stream);
  /// The bits of quantizers/gptq.h.
  void (*gptq)(const DeviceGptqJob& job);
  /// Bytes for so many rows.
  std::int64_t (*gptq_workspace)(std::int64_t rows, std::int64_t depth);
  void (*relayout)(const std::uint8_t* in, ScaleLayout in_layout, std::uint8_t* out,
                   ScaleLayout out_layout, std::int64_t rows, std::int64_t blocks, Device device,
                   Stream stream);
  const DeviceSolver* (*solver)();  ///< null: none
};

/// Throws UnsupportedError with the reason if nothing can run on `device`.
const DeviceBackend& device_backend(Device device);

}  // namespace nvfp4
