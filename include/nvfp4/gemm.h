#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "nvfp4/matrix.h"
#include "nvfp4/quantize.h"

/// Products with NVFP4 weights: y = x · Wᵀ, W [N, K], K % 16 == 0, N >= 1, any M >= 0.
/// A batch (B, S, K) is a matrix of B·S rows.
namespace nvfp4 {

/// How the bytes of packed weights are arranged.
enum class WeightLayout : std::uint8_t {
  /// Panels of 16 rows (the last one padded with zeros), in each panel groups of 4 blocks (the last
  /// one of what is left). A group holds its scales, E4M3 [block][row], then its codes, as
  /// [block][half][row] words of 32 bits: the 8 elements of that half block, element 0 lowest.
  interleaved_16x4,
  /// Tiles of 64 rows and 64 columns, padded with zeros, in the order of the registers of tensor
  /// cores (tensor_core_gemm.h, docs/layouts.md).
  fragments_64x64,
};

/// Weights in the order in which the kernels of every backend read them; 9 bytes for 16 elements,
/// as in a checkpoint, N rounded up to 16. Moves, does not copy.
class PackedWeights {
 public:
  static constexpr std::int64_t kPanelRows = 16, kGroupBlocks = 4;

  PackedWeights() = default;
  /// Uninitialized bytes for pack_weights(). Throws ShapeError.
  PackedWeights(std::int64_t rows, std::int64_t cols, GlobalScope scope);
  PackedWeights(PackedWeights&& other) noexcept { swap(other); }
  PackedWeights& operator=(PackedWeights&& other) noexcept {
    PackedWeights(std::move(other)).swap(*this);
    return *this;
  }
  void swap(PackedWeights& other) noexcept;

  WeightLayout layout() const { return WeightLayout::interleaved_16x4; }
  std::int64_t rows() const { return rows_; }  ///< N
  std::int64_t cols() const { return cols_; }  ///< K
  std::int64_t blocks() const { return cols_ / kBlock; }
  GlobalScope scope() const { return scope_; }  ///< vector: one global scale for each output row
  std::int64_t panels() const { return ceil_div(rows_, kPanelRows); }
  std::int64_t panel_bytes() const { return kPanelRows * blocks() * 9; }
  std::int64_t bytes() const { return panels() * panel_bytes(); }  ///< of codes and scales
  const std::uint8_t* data() const { return reinterpret_cast<const std::uint8_t*>(data_.get()); }
  std::uint8_t* data() { return reinterpret_cast<std::uint8_t*>(data_.get()); }
  std::int64_t global_count() const { return scope_ == GlobalScope::tensor ? 1 : rows_; }
  const float* global_scale() const { return global_.get(); }
  float* global_scale() { return global_.get(); }
  float global_of(std::int64_t row) const {
    return global_[static_cast<std::size_t>(scope_ == GlobalScope::tensor ? 0 : row)];
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::unique_ptr<float[]> global_;
  std::int64_t rows_ = 0, cols_ = 0;
  GlobalScope scope_ = GlobalScope::tensor;
};

/// Packs NVFP4 weights once, before they are used.
///
/// Shapes  `w` stands for W [N, K] (axis rows) or for its transpose [K, N] (axis columns), blocks
///         of 16, any scale layout, a global scale for the tensor or for each output.
/// Throws  ShapeError; ValueError if a scale is NaN or has its sign set.
PackedWeights pack_weights(QuantizedView w);
/// The outputs of several weights of one K, one after the other. Each keeps its global scales:
/// there is one for each output, unless a single one is that of all.
PackedWeights pack_weights(std::span<const QuantizedView> parts);
/// Quantizes, then packs. `options.axis` says where K is, as in quantize().
PackedWeights pack_weights(MatrixView w, const QuantizeOptions& options = {});

/// The codes, scales and global scales that were packed: axis rows, linear layout, bit for bit.
QuantizedMatrix unpack_weights(const PackedWeights& w);

struct GemmOptions {
  /// Another factor, beside the global scales.
  float alpha = 1.0f;
  /// None, or N of them, added to every row.
  std::span<const float> bias = {};
  /// The same row of x gives the same bits whatever M is. What it costs, and where it makes a
  /// difference at all, is in docs/numerics.md.
  bool batch_invariant = false;
  std::string_view backend = {};  ///< "" takes NVFP4_BACKEND from the environment, else the best
};

/// W4A16: out[m, n] = (alpha · global_n) · Σ_k x[m, k] · (e2m1 · scale)[n, k] + bias[n]
///
/// Shapes  x [M, K], out [M, N], any dtypes; out must not overlap x.
/// Units   the weights are exact; sums are FP32; factor and bias are applied in FP32, and the
/// result
///         is rounded once to the type of `out`. Error bounds: docs/numerics.md.
/// Throws  ShapeError, ValueError, UnsupportedError.
void gemm_into(MatrixView x, const PackedWeights& w, MatrixSpan out,
               const GemmOptions& options = {});
Matrix gemm(MatrixView x, const PackedWeights& w, DType out = DType::f32,
            const GemmOptions& options = {});

/// W4A4: the same with x quantized along its rows, in blocks of 16, linear scales, a global scale
/// for the tensor or for each row: out[m, n] = (alpha · (x.global_m · global_n)) · Σ + bias[n].
/// The dot product of two blocks is exact; the FP32 sum over blocks goes from the first to the
/// last. The same bits on every backend, for any M and any number of threads.
void gemm_into(QuantizedView x, const PackedWeights& w, MatrixSpan out,
               const GemmOptions& options = {});
Matrix gemm(QuantizedView x, const PackedWeights& w, DType out = DType::f32,
            const GemmOptions& options = {});

struct GroupedGemmOptions {
  /// None, or one factor for each group, beside the global scales.
  std::span<const float> alpha = {};
  /// None, or G · N of them: those of group g start at g · N.
  std::span<const float> bias = {};
  bool batch_invariant = false;  ///< as in GemmOptions
  std::string_view backend = {};
};

/// Every group of rows has weights of its own (a mixture of experts): rows
/// [row_ends[g-1], row_ends[g]) of x times w[g]ᵀ.
///
/// Shapes  x [M, K]; w: G of [N, K]; row_ends: G cumulative ends, never decreasing, the last at
/// most
///         M; groups may be empty; out [M, N], whose rows after the last end are not touched.
/// Throws  ShapeError, ValueError, UnsupportedError.
void grouped_gemm_into(MatrixView x, std::span<const PackedWeights> w,
                       std::span<const std::int64_t> row_ends, MatrixSpan out,
                       const GroupedGemmOptions& options = {});
void grouped_gemm_into(QuantizedView x, std::span<const PackedWeights> w,
                       std::span<const std::int64_t> row_ends, MatrixSpan out,
                       const GroupedGemmOptions& options = {});

/// Every row goes to every group: out[t, g, :] = x[t, g, :] · w[g]ᵀ ("bhr,hdr->bhd").
///
/// Shapes  x [T, G·K], group g in columns [g·K, (g+1)·K), or [T, K], shared by all groups;
///         w: G >= 1 of [N, K]; out [T, G·N].
/// Throws  ShapeError, ValueError, UnsupportedError.
void gemm_every_group_into(MatrixView x, std::span<const PackedWeights> w, MatrixSpan out,
                           const GroupedGemmOptions& options = {});
void gemm_every_group_into(QuantizedView x, std::span<const PackedWeights> w, MatrixSpan out,
                           const GroupedGemmOptions& options = {});

}  // namespace nvfp4
