#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "backends/moe_job.h"
#include "backends/packed_storage.h"
#include "nvfp4/quantize.h"

/// A GEMM in the form that the architectures of gemm/ launch. gemm_backend.cc creates it from a
/// call.
namespace nvfp4::cuda {

struct FragmentGemmJob {
  MatrixView x = {};                           ///< BF16 or FP16; with quantized_x only its shape
  const QuantizedView* quantized_x = nullptr;  ///< see Architecture::reads_quantized_x
  const PackedStorage* w = nullptr;
  MatrixSpan out = {};
  const float* x_global = nullptr;  ///< null: 1
  bool x_global_per_row = false;
  const std::int32_t* starts = nullptr;  ///< null: a group starts at the end of the previous one
  /// Null: every group has all rows, unless there is a routing.
  const std::int32_t* ends = nullptr;
  const Routing* routing = nullptr;  ///< names the group of each row of out, or null
  /// True if the previously enqueued work does not write starts, ends and ids.
  bool row_ends_settled = false;
  float alpha = 1.0f;
  const float* group_alpha = nullptr;  ///< one for each group, or null
  const float* bias = nullptr;         ///< groups · N values, or null
  // SwiGLU of the sums, for weights with gate_up(). The result goes to `out`, or to `quantized`
  // (max quantizer) if that has codes.
  float limit = std::numeric_limits<float>::infinity();
  QuantizedSpan quantized = {};
  GlobalScales global = {};
  std::span<std::byte> staging = {};  ///< see Architecture::staging_bytes
  Stream stream = {};
};

}  // namespace nvfp4::cuda
