#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backends/gemm_kernels.h"
#include "backends/row_job.h"
#include "nvfp4/quantize.h"
#include "nvfp4/runtime.h"

/// The interface of a backend: functions on one tile, called from many threads with validated
/// arguments. A null function means unsupported.
namespace nvfp4 {

/// A part of a quantized matrix: vectors [v0, v1), blocks [b0, b1) of each.
struct Tile {
  std::int64_t v0, v1, b0, b1;
};

struct EncodeJob {
  MatrixView x;
  QuantizedSpan out;
  Quantizer quantizer;
  const float* divisors;       ///< one, or one for each vector, see out.shape.scope
  const float* weights;        ///< K weights, the largest in [1, 2), or null
  MatrixView hessian{};        ///< FP32 [K, block], or without data; see hessian_cost()
  std::int64_t first_row = 0;  ///< row of out where x starts; axis rows only
  /// Data that is read after row v0 + i of a tile, or null. It is at next + i · next_stride, has
  /// next_bytes, and may be prefetched.
  const std::byte* next = nullptr;
  std::int64_t next_stride = 0, next_bytes = 0;
  /// Packed weights of out.shape that receive codes and scales, or null; see Backend::pack.
  std::uint8_t* panels = nullptr;
  float divisor_of(std::int64_t vector) const {
    return divisors[out.shape.scope == GlobalScope::tensor ? 0 : vector];
  }
};

struct AmaxResult {
  float amax = 0;      ///< NaN ignored
  bool finite = true;  ///< there was neither NaN nor infinity
};

struct GptqJob;

/// The operands of c [rows, columns] −= a [rows, depth] · b [depth, columns] in FP64. Each sum has
/// the order of depth, by fused multiply-add where available. rows and depth are at most kSide;
/// columns % 16 == 0.
struct ProductF64 {
  static constexpr std::int64_t kSide = 128;
  double* c;
  const double *a, *b;
  std::int64_t c_stride, a_stride, b_stride;
  std::int64_t rows, columns, depth;
};

struct Backend {
  std::string_view name;
  std::string_view description;
  /// Writes the tile's codes and scales. The caller writes padding scales.
  void (*encode)(const EncodeJob& job, const Tile& tile);
  /// Same as encode, into job.panels: whole panels, blocks of 16.
  void (*pack)(const EncodeJob& job, const Tile& tile);
  void (*decode)(const QuantizedView& q, const MatrixSpan& out, const Tile& tile);
  /// Returns the largest magnitude of rows [r0, r1).
  AmaxResult (*amax)(const MatrixView& x, std::int64_t r0, std::int64_t r1);
  /// Computes out[c] = max(out[c], largest magnitude of column c in rows [r0, r1)).
  void (*column_amax)(const MatrixView& x, std::int64_t r0, std::int64_t r1, float* out);
  /// Computes Σ (x − x̂)² and Σ x² of each of blocks [first, first + count), numbered in memory
  /// order. See quantizers/error_sum.h.
  void (*block_errors)(const MatrixView& x, const QuantizedView& q, std::int64_t first,
                       std::int64_t count, float* errors, float* norms);
  /// Computes rows [r0, r1) contiguously in `rows`, and the job's other outputs. amax[r - r0] is
  /// the largest magnitude of row r, ignoring NaN.
  void (*make_rows)(const RowJob& job, std::int64_t r0, std::int64_t r1, float* rows, float* amax);
  /// Rounds rows [r0, r1) and stores them in y.
  void (*store_rows)(const float* rows, std::int64_t r0, std::int64_t r1, const MatrixSpan& y);
  /// Computes blocks [b0, b1) of gram_into().
  void (*gram)(const MatrixView& x, const MatrixSpan& out, bool accumulate, std::int64_t b0,
               std::int64_t b1);
  /// Quantizes rows [r0, r1) of a weight, see quantizers/gptq.h.
  void (*gptq)(const GptqJob& job, std::int64_t r0, std::int64_t r1);
  void (*subtract_product)(const ProductF64& product);
  GemmKernels w4a4, w4a16;
  /// Kernels for x of these types, where they are faster than w4a16.
  GemmKernels w4a16_bf16{}, w4a16_f16{};
  /// Computes factor · sums + bias for a part of the output, rounded to its type.
  void (*finish_gemm)(const GemmOutput& output, const float* sums, std::int64_t stride,
                      const GemmPart& part);
};

/// A backend of this build and its public description.
struct BackendEntry {
  const Backend* backend;  ///< null: not on this machine
  BackendInfo info;
};

/// Returns the backend with this name; "" is the default. Throws ValueError for an unknown name,
/// UnsupportedError if it cannot run on this machine.
const Backend& find_backend(std::string_view name);

}  // namespace nvfp4
