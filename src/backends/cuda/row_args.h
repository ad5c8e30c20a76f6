#pragma once

#include "backends/cuda/device/globals.cuh"
#include "backends/row_job.h"

namespace nvfp4::cuda {

/// How a thread makes its part of a row: reading it, normalizing it too, adding up streams (and
/// normalizing the sum, if there are weights), or from gate and up.
enum class RowKind : std::uint8_t { plain, norm, mix, swiglu };

enum class RowMode : std::uint8_t { quantize, store, amax };

/// Every layout of scales is a sum of what the row gives and what the block gives; the former is
/// one of tiles, of 32 rows in a tile, and of rows.
struct ScaleSteps {
  std::int64_t chunk = 0;  ///< bytes to the scale 32 blocks further
  std::int32_t tile = 0, row = 0;
  std::int32_t tile_shift = 0;  ///< rows of a tile: two to the power of this
};

/// What every row needs comes first: a kernel's arguments are fetched a cache line at a time.
struct RowArgs {
  const char* x = nullptr;
  std::int64_t x_stride = 0;  ///< bytes
  std::int32_t rows = 0;
  std::int32_t blocks = 0;  ///< 16s in a row that is made
  bool aligned = false;     ///< every block of x starts at a multiple of 16 bytes
  bool measure = false;     ///< the global scale of each row from the row
  bool write_globals = false;
  bool has_groups = false;
  bool has_residual = false;
  bool of_vectors = false;  ///< out has a global scale for each row
  RowMode mode = RowMode::quantize;
  Quantizer quantizer = Quantizer::max;
  ScaleLayout layout = ScaleLayout::linear;
  std::int32_t block = 16;
  std::int32_t top_k = 0;
  ScaleSteps scale_steps;
  std::uint8_t* codes = nullptr;
  std::uint8_t* scales = nullptr;
  float* global_scale = nullptr;

  const float* weight = nullptr;
  float* rstd = nullptr;
  float eps = 0;
  DType intermediate = DType::f32;
  float limit = 0;
  std::int32_t interleave = 0;
  Globals globals;

  const float* mix = nullptr;
  std::int64_t mix_stride = 0;
  std::int32_t streams = 0;
  MatrixView residual;
  MatrixSpan residual_out;
  RowGroups groups;
  Routing routing;
  StagedRouting staged;
  MatrixSpan y;  ///< mode store
};

/// One for each kind, in a .cu of its own. Chooses the instance for dtype, number and length of
/// rows.
void launch_plain_rows(const RowArgs& a, DType dtype, Device device, Stream stream);
void launch_norm_rows(const RowArgs& a, DType dtype, Device device, Stream stream);
void launch_mix_rows(const RowArgs& a, DType dtype, Device device, Stream stream);
void launch_swiglu_rows(const RowArgs& a, DType dtype, Device device, Stream stream);

}  // namespace nvfp4::cuda
