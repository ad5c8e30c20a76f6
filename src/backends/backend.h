#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backends/gemm_kernels.h"
#include "backends/row_job.h"
#include "nvfp4/quantize.h"
#include "nvfp4/runtime.h"

/// What a backend provides: functions on one tile, called from many threads, arguments already
/// validated. A null function means unsupported.
namespace nvfp4 {

/// Part of a quantized matrix: vectors [v0, v1), blocks [b0, b1) of each.
struct Tile {
  std::int64_t v0, v1, b0, b1;
};

struct EncodeJob {
  MatrixView x;
  QuantizedSpan out;
  Quantizer quantizer;
  const float* divisors;       ///< one, or one for each vector: out.shape.scope
  const float* weights;        ///< K of them, the largest in [1, 2); or null
  MatrixView hessian{};        ///< FP32 [K, block] or without data; see hessian_cost()
  std::int64_t first_row = 0;  ///< of out, that x starts at; axis rows only
  /// If not null, what will be read after row v0 + i of a tile is at next + i · next_stride, of
  /// next_bytes, and may be fetched meanwhile.
  const std::byte* next = nullptr;
  std::int64_t next_stride = 0, next_bytes = 0;
  /// If given, packed weights of out.shape, which get codes and scales; see Backend::pack.
  std::uint8_t* panels = nullptr;
  float divisor_of(std::int64_t vector) const {
    return divisors[out.shape.scope == GlobalScope::tensor ? 0 : vector];
  }
};

struct AmaxResult {
  float amax = 0;      ///< NaN ignored
  bool finite = true;  ///< neither NaN nor infinity was seen
};

struct GptqJob;

/// c [rows, columns] −= a [rows, depth] · b [depth, columns] of FP64, each sum in the order of
/// depth, by fused multiply-add where the machine has it. No more rows than kSide, and no more
/// depth; columns % 16 == 0.
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
  /// Writes the tile's codes and scales. Padding scales are the caller's.
  void (*encode)(const EncodeJob& job, const Tile& tile);
  /// The same into job.panels: whole panels, rows of one block of 16 after the other.
  void (*pack)(const EncodeJob& job, const Tile& tile);
  void (*decode)(const QuantizedView& q, const MatrixSpan& out, const Tile& tile);
  /// Of rows [r0, r1).
  AmaxResult (*amax)(const MatrixView& x, std::int64_t r0, std::int64_t r1);
  /// out[c] = max(out[c], largest magnitude of column c in rows [r0, r1)).
  void (*column_amax)(const MatrixView& x, std::int64_t r0, std::int64_t r1, float* out);
  /// Σ (x − x̂)² and Σ x² of each of blocks [first, first + count), numbered as they lie in memory.
  /// See quantizers/error_sum.h.
  void (*block_errors)(const MatrixView& x, const QuantizedView& q, std::int64_t first,
                       std::int64_t count, float* errors, float* norms);
  /// Makes rows [r0, r1), one after the other in `rows`, with all that the job wants beside them.
  /// amax[r - r0] gets the largest magnitude of row r, NaN ignored.
  void (*make_rows)(const RowJob& job, std::int64_t r0, std::int64_t r1, float* rows, float* amax);
  /// Rounds rows [r0, r1) into y.
  void (*store_rows)(const float* rows, std::int64_t r0, std::int64_t r1, const MatrixSpan& y);
  /// Blocks [b0, b1) of gram_into().
  void (*gram)(const MatrixView& x, const MatrixSpan& out, bool accumulate, std::int64_t b0,
               std::int64_t b1);
  /// Rows [r0, r1) of a weight, see quantizers/gptq.h.
  void (*gptq)(const GptqJob& job, std::int64_t r0, std::int64_t r1);
  void (*subtract_product)(const ProductF64& product);
  GemmKernels w4a4, w4a16;
  /// For x of these types, where there are better ones than w4a16.
  GemmKernels w4a16_bf16{}, w4a16_f16{};
  /// The part of the output is factor · sums + bias, rounded to its type.
  void (*finish_gemm)(const GemmOutput& output, const float* sums, std::int64_t stride,
                      const GemmPart& part);
};

/// A backend of this build, and what people are told of it.
struct BackendEntry {
  const Backend* backend;  ///< null: not on this machine
  BackendInfo info;
};

/// Selected by name, "" for the default. Throws ValueError for an unknown name, UnsupportedError if
/// it cannot run here.
const Backend& find_backend(std::string_view name);

}  // namespace nvfp4
