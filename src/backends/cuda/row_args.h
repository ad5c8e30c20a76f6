#pragma once

#include "backends/cuda/device/globals.cuh"
#include "backends/row_job.h"

namespace nvfp4::cuda {

/// How a thread makes its part of a row: reading it (and normalizing it, if asked), adding up
/// streams, or from gate and up.
enum class RowKind : std::uint8_t { plain, mix, swiglu };

enum class RowMode : std::uint8_t { quantize, store, amax };

struct RowArgs {
  RowJob rows;
  std::int64_t blocks = 0;  ///< 16s in a row that is made
  RowMode mode = RowMode::quantize;
  QuantizedSpan out;
  Quantizer quantizer = Quantizer::max;
  bool measure = false;        ///< the global scale of each row from the row
  bool write_globals = false;  ///< measured here or given: stored in out
  Globals globals;
  RowGroups groups;
  Routing routing;
  StagedRouting staged;
  MatrixSpan y;  ///< mode store
};

/// One for each kind, in a .cu of its own. Chooses the instance for dtype and row length.
void launch_plain_rows(const RowArgs& a, Stream stream);
void launch_mixed_rows(const RowArgs& a, Stream stream);
void launch_swiglu_rows(const RowArgs& a, Stream stream);

}  // namespace nvfp4::cuda
