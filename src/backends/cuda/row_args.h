#pragma once

#include "backends/cuda/device/globals.cuh"
#include "backends/row_job.h"

namespace nvfp4::cuda {

/// The computation of a row: read it, normalize it, mix streams (and normalize if there are
/// weights), or SwiGLU of gate and up.
enum class RowKind : std::uint8_t { plain, norm, mix, swiglu };

enum class RowMode : std::uint8_t { quantize, store, amax };

/// The steps of a scale's offset in its layout. An offset is a sum of a row's part and a block's
/// part. The row's part adds up tiles, rows in a tile, and groups of 32 rows in a tile.
struct ScaleSteps {
  std::int64_t chunk = 0;  ///< bytes between scales that are 32 blocks apart
  std::int32_t tile = 0, row = 0;
  std::int32_t tile_shift = 0;  ///< log2 of the rows in a tile
};

/// Arguments of the row kernels. Members that every row needs are first, because a kernel's
/// arguments are loaded by cache lines.
struct RowArgs {
  const char* x = nullptr;
  std::int64_t x_stride = 0;  ///< in bytes
  std::int32_t rows = 0;
  std::int32_t blocks = 0;  ///< blocks of 16 in an output row
  bool aligned = false;     ///< every block of x is aligned to 16 bytes
  bool measure = false;     ///< each row determines its own global scale
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
  MatrixSpan y;  ///< output of RowMode::store
};

/// Launchers for each kind, each in its own .cu file. They choose the kernel by dtype, number and
/// length of rows.
void launch_plain_rows(const RowArgs& a, DType dtype, Device device, Stream stream);
void launch_norm_rows(const RowArgs& a, DType dtype, Device device, Stream stream);
void launch_mix_rows(const RowArgs& a, DType dtype, Device device, Stream stream);
void launch_swiglu_rows(const RowArgs& a, DType dtype, Device device, Stream stream);

}  // namespace nvfp4::cuda
