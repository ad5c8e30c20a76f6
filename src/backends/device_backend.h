#pragma once

#include <cstdint>
#include <limits>

#include "backends/moe_job.h"
#include "backends/row_job.h"
#include "nvfp4/quantize.h"
#include "nvfp4/tensor_core_gemm.h"

/// What a device other than the CPU provides: whole operations, enqueued on a stream. Arguments are
/// validated and lie on `device`, but for pointers marked host.
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

/// Rows [first_row, first_row + packed.rows()) of the vectors of w -> a group of `packed`, or back.
struct FragmentPackJob {
  QuantizedView w = {};
  std::int64_t first_row = 0;
  FragmentWeights* packed = nullptr;
  std::int64_t group = 0;
  /// Null, or raised on the device to the complement of the first bad scale's place.
  std::uint64_t* bad_scale = nullptr;
  Stream stream = {};
};
struct FragmentUnpackJob {
  const FragmentWeights* packed = nullptr;
  std::int64_t group = 0;
  QuantizedSpan w = {};  ///< axis rows, linear scales
  Stream stream = {};
};

/// Any product with FragmentWeights.
struct FragmentGemmJob {
  MatrixView x = {};  ///< BF16 or FP16
  const FragmentWeights* w = nullptr;
  MatrixSpan out = {};
  const float* x_global = nullptr;  ///< null: 1
  bool x_global_per_row = false;
  const std::int32_t* starts = nullptr;  ///< null: the end of the group before
  const std::int32_t* ends = nullptr;    ///< null: every group has all rows, or see routing
  const Routing* routing = nullptr;      ///< null, or its ids say which group a row of out has
  TensorCoreGemmOptions options = {};
  // SwiGLU of the sums, of weights with gate_up(): to `out`, or quantized with the max quantizer to
  // `quantized` if that has codes.
  float limit = std::numeric_limits<float>::infinity();
  QuantizedSpan quantized = {};
  GlobalScales global = {};
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
  void (*relayout)(const std::uint8_t* in, ScaleLayout in_layout, std::uint8_t* out,
                   ScaleLayout out_layout, std::int64_t rows, std::int64_t blocks, Device device,
                   Stream stream);
  void (*pack_fragments)(const FragmentPackJob& job);
  void (*unpack_fragments)(const FragmentUnpackJob& job);
  void (*fragment_gemm)(const FragmentGemmJob& job);
  void (*dispatch)(const DispatchJob& job);
  void (*gather_rows)(const GatherJob& job);
  void (*combine_rows)(const CombineJob& job);
  /// y += other: FP32, dense, a multiple of 4 columns.
  void (*add_rows)(const MatrixView& other, const MatrixSpan& y, Stream stream);
  /// Zeroes the rows of m, as in add_rows, from *first on, which lies on the device.
  void (*clear_rows_from)(const std::int32_t* first, const MatrixSpan& m, Stream stream);
};

/// Throws UnsupportedError with the reason if nothing can run on `device`.
const DeviceBackend& device_backend(Device device);

}  // namespace nvfp4
