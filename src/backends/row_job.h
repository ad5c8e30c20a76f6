#pragma once

#include <cstdint>

#include "nvfp4/activation.h"

/// The fused operations, as backends see them: something makes FP32 rows, and these are stored or
/// quantized. Arguments are validated.
namespace nvfp4 {

enum class RowSource : std::uint8_t { plain, rms_norm, mix, mix_rms_norm, swiglu };

/// Makes rows of `cols` FP32 values; src/quantizers/row_math.h has the formulas.
struct RowJob {
  RowSource source = RowSource::plain;
  MatrixView x = {};      ///< [M, cols]; mix: [M, streams · cols]; swiglu: [M, 2 · cols]
  std::int64_t cols = 0;  ///< of the row that is made

  const float* weight = nullptr;  ///< rms_norm: [cols]
  RmsNormOptions norm = {};
  MatrixView mix = {};  ///< FP32 [M, streams]
  int streams = 0;
  SwigluOptions swiglu = {};

  NVFP4_HD bool normalizes() const {
    return source == RowSource::rms_norm || source == RowSource::mix_rms_norm;
  }
};

/// Rows [starts[g], ends[g]) of each group count, the others are written as zeros. None: all count.
struct RowGroups {
  const std::int32_t* starts = nullptr;
  const std::int32_t* ends = nullptr;
  std::int64_t count = 0;
};

struct RowQuantizeJob {
  RowJob rows = {};
  QuantizedSpan out = {};  ///< axis rows
  Quantizer quantizer = Quantizer::max;
  GlobalScales global =
      {};  ///< empty: measured, for the tensor or for each row as out.shape.scope says
  RowGroups groups = {};
  Routing routing = {};  ///< top_k = 0: none to stage
  StagedRouting staged = {};
  Stream stream = {};
};

}  // namespace nvfp4
