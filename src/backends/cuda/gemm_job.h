#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "backends/moe_job.h"
#include "backends/packed_storage.h"
#include "nvfp4/quantize.h"

/// A product as the architectures of gemm/ launch it: gemm_backend.cc makes it of a call.
namespace nvfp4::cuda {

struct FragmentGemmJob {
  MatrixView x = {};  ///< BF16 or FP16; with quantized_x its rows and columns alone
  const QuantizedView* quantized_x = nullptr;  ///< see Architecture::reads_quantized_x
  const PackedStorage* w = nullptr;
  MatrixSpan out = {};
  const float* x_global = nullptr;  ///< null: 1
  bool x_global_per_row = false;
  const std::int32_t* starts = nullptr;  ///< null: the end of the group before
  const std::int32_t* ends = nullptr;    ///< null: every group has all rows, or see routing
  const Routing* routing = nullptr;      ///< null, or its ids say which group a row of out has
  /// What was enqueued last does not write starts, ends and ids.
  bool row_ends_settled = false;
  float alpha = 1.0f;
  const float* group_alpha = nullptr;  ///< null, or one for each group
  const float* bias = nullptr;         ///< null, or groups · N
  // SwiGLU of the sums, of weights with gate_up(): to `out`, or quantized with the max quantizer to
  // `quantized` if that has codes.
  float limit = std::numeric_limits<float>::infinity();
  QuantizedSpan quantized = {};
  GlobalScales global = {};
  std::span<std::byte> staging = {};  ///< see Architecture::staging_bytes
  Stream stream = {};
};

}  // namespace nvfp4::cuda
