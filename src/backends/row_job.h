#pragma once

#include <cstdint>

#include "nvfp4/activation.h"

/// The fused operations of a backend: FP32 rows are computed, then stored or quantized. Arguments
/// are validated.
namespace nvfp4 {

enum class RowSource : std::uint8_t { plain, rms_norm, mix, mix_rms_norm, swiglu };

/// Computes rows of `cols` FP32 values; src/quantizers/row_math.h has the formulas.
struct RowJob {
  RowSource source = RowSource::plain;
  MatrixView x = {};      ///< [M, cols]; mix: [M, streams · cols]; swiglu: [M, 2 · cols]
  std::int64_t cols = 0;  ///< columns of an output row

  const float* weight = nullptr;  ///< rms_norm: [cols]
  RmsNormOptions norm = {};
  MatrixView mix = {};  ///< FP32 [M, streams]
  int streams = 0;
  SwigluOptions swiglu = {};

  NVFP4_HD bool normalizes() const {
    return source == RowSource::rms_norm || source == RowSource::mix_rms_norm;
  }
};

/// The rows to process: rows [starts[g], ends[g]) of each group, or every row if there are no
/// groups. Other rows are written as zeros.
struct RowGroups {
  const std::int32_t* starts = nullptr;
  const std::int32_t* ends = nullptr;
  std::int64_t count = 0;
};

struct RowQuantizeJob {
  RowJob rows = {};
  QuantizedSpan out = {};  ///< axis rows
  Quantizer quantizer = Quantizer::max;
  GlobalScales global = {};  ///< empty: measured, with the scope of out.shape.scope
  RowGroups groups = {};
  Routing routing = {};  ///< top_k = 0: nothing to copy
  StagedRouting staged = {};
  Stream stream = {};
};

}  // namespace nvfp4
