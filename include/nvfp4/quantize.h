#pragma once

#include <concepts>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nvfp4/matrix.h"

namespace nvfp4 {

/// The rule that chooses the E4M3 scale of a block.
enum class Quantizer : std::uint8_t {
  max,            ///< amax / 6, with the bits of TransformerEngine
  four_over_six,  ///< amax / 6 or amax / 4, the one with less squared error; a tie takes / 6
  mse,            ///< the scale with the least (weighted) squared error of all 126 positive ones;
                  ///< a tie takes the lowest
};
/// Returns "max", "four_over_six" or "mse".
std::string_view quantizer_name(Quantizer q);
/// Returns the quantizer of this name. Throws ValueError, which lists the known names.
Quantizer quantizer_from_name(std::string_view name);
/// Returns the names of all quantizers.
std::vector<std::string> quantizer_names();

/// A global scale as multiplier and divisor. Both are stored because a reciprocal taken twice is
/// off by an ulp.
struct GlobalScale {
  float multiplier = 1.0f;  ///< x ≈ e2m1 · scale · multiplier; ModelOpt's weight_scale_2
  float divisor = 1.0f;     ///< 1 / multiplier; compressed-tensors' weight_global_scale

  /// Returns amax / (6 · scale_max(q)) for a tensor (or vector) whose largest magnitude is `amax`.
  /// If `amax` is zero or infinity, the scale is 1. Throws ValueError if `amax` is NaN or negative.
  static GlobalScale from_amax(float amax, Quantizer q);
  /// Returns the scale with this multiplier. Throws ValueError unless multiplier and divisor are
  /// positive and 448 times the multiplier is finite.
  static GlobalScale from_multiplier(float multiplier);
  /// Returns the scale with this divisor. Throws ValueError as from_multiplier() does.
  static GlobalScale from_divisor(float divisor);
};

/// Returns the largest block scale for which from_amax() leaves room: 448 for max, 256 for the
/// other quantizers. With 256 a block scale can also be rounded upwards without saturation.
float scale_max(Quantizer q);

/// Global scales that the caller gives: one for the tensor, or one for each vector. They must be on
/// the device of the input. A single one may also be on the host; it is then read during the call.
struct GlobalScales {
  const GlobalScale* data = nullptr;
  std::size_t count = 0;
  Device device{};

  GlobalScales() = default;
  GlobalScales(const GlobalScale* data_, std::size_t count_, Device device_ = {})
      : data(data_), count(count_), device(device_) {}
  template <class Range>
    requires std::convertible_to<const Range&, std::span<const GlobalScale>>
  GlobalScales(const Range& range)  // NOLINT: implicit on purpose
      : data(std::data(range)), count(std::size(range)) {}
  bool empty() const { return count == 0; }
  std::size_t size() const { return count; }
  /// Returns a global scale. The array must be on the CPU.
  const GlobalScale& operator[](std::size_t i) const { return data[i]; }
};

/// The options of quantize() and of the operations that quantize their result.
struct QuantizeOptions {
  /// The quantizer. The default is mse for quantize() and pack_weights(), and max for activations
  /// (nvfp4/activation.h).
  std::optional<Quantizer> quantizer = {};
  BlockAxis axis = BlockAxis::rows;
  int block = kBlock;  ///< 16, or 32 with four_over_six and mse
  ScaleLayout layout = ScaleLayout::linear;
  GlobalScope scope = GlobalScope::tensor;
  /// The global scales: one for the tensor, or one for each vector. If empty, they are measured
  /// from x.
  GlobalScales global = {};
  /// Weights of the K positions, each >= 0, for mse only. The cost of a block is Σ w_k (x_k -
  /// x̂_k)². The array is on the device of x; on CUDA the values are not checked.
  std::span<const float> weights = {};
  /// The Hessian, for mse only and without `weights`: FP32 [K, block]. Its rows from j·block on are
  /// the symmetric matrix H_j for block j of K (see gram_into()). The cost is rᵀ H_j r with r = x -
  /// x̂.
  MatrixView hessian = {};
  /// If true, NaN and infinities throw a ValueError with the index of the first one. On CUDA this
  /// would have to wait for the device: it throws UnsupportedError.
  bool check_finite = false;
  std::string_view backend = {};  ///< backend of the CPU; "": NVFP4_BACKEND, else the best
  Stream stream = {};
};

/// Quantizes `x` to NVFP4: E2M1 codes, an E4M3 scale for each block, FP32 global scales.
///
/// Shapes  x [rows, cols] -> see QuantizedShape. K (cols, or rows for axis = columns) % block == 0.
/// Units   x ≈ e2m1 · scale · global_scale.
/// Values  zero block: all codes ±0; its scale is 0 (max, four_over_six) or 2^-9 (mse). NaN is
///         ignored by every amax and becomes +6; with an infinity the measured global scale is 1
///         and the element saturates. See docs/numerics.md.
/// Device  that of x; on CUDA the call enqueues work on options.stream and returns. It allocates
///         nothing (quantize() allocates its result), waits for nothing and can be captured in a
///         graph.
/// Throws  ShapeError, ValueError, UnsupportedError, DeviceError.
/// Source  arXiv:2509.25149; docs/numerics.md.
QuantizedMatrix quantize(MatrixView x, const QuantizeOptions& options = {});

/// Quantizes into memory of the caller. Throws ShapeError unless `out.shape` is what `x` and
/// `options` imply. Writes every byte of codes, scales (also padding) and global scales.
void quantize_into(MatrixView x, QuantizedSpan out, const QuantizeOptions& options = {});

/// Returns the largest magnitude of a matrix on the CPU. NaN is ignored; an empty matrix has 0.
/// Throws ShapeError, UnsupportedError.
float amax(MatrixView x, std::string_view backend = {});

/// Writes the largest magnitude of the tensor (1 value) or of each vector of blocks. `out` is on
/// the device of x. Throws ShapeError, UnsupportedError, DeviceError.
void amax_into(MatrixView x, float* out, GlobalScope scope = GlobalScope::tensor,
               BlockAxis axis = BlockAxis::rows, std::string_view backend = {}, Stream stream = {});

/// Writes GlobalScale::from_amax() of `count` values. Values and result are on `device`. A NaN or a
/// negative value counts as 0. Throws ShapeError, DeviceError.
void global_scales_into(const float* amaxes, GlobalScale* out, std::int64_t count, Quantizer q,
                        Device device = {}, Stream stream = {});

/// Writes H_j = X_jᵀ X_j for every block j of columns of X [T, K], one below the other. `out` is
/// FP32 [K, block] with block = 16 or 32. With `accumulate`, H_j is added to the values in `out`.
/// The order of additions is in docs/numerics.md. Throws ShapeError, ValueError, UnsupportedError,
/// DeviceError.
void gram_into(MatrixView x, MatrixSpan out, bool accumulate = false, Stream stream = {});

/// Writes e2m1 · scale · global_scale. The product e2m1 · scale is exact. The product with
/// global_scale rounds once to FP32. The cast to the type of `out` rounds to nearest, ties to even.
/// `out` has the shape of the dequantized matrix and is on the device of `q`. Throws ShapeError,
/// UnsupportedError, DeviceError.
void dequantize_into(QuantizedView q, MatrixSpan out, std::string_view backend = {},
                     Stream stream = {});
/// Returns the dequantized matrix, on the device of `q`. Throws ShapeError, UnsupportedError.
Matrix dequantize(QuantizedView q, DType dtype = DType::f32, std::string_view backend = {});

/// The two sums behind the relative error of a quantized matrix.
struct QuantizationError {
  double squared_error = 0;  ///< Σ (x − x̂)²
  double squared_norm = 0;   ///< Σ x²
};
/// Returns the error of `q` against `x`; both must be on the CPU. The order of additions is in
/// docs/numerics.md: the bits depend neither on the backend nor on the number of threads. Throws
/// ShapeError, UnsupportedError.
QuantizationError quantization_error(MatrixView x, QuantizedView q, std::string_view backend = {});

/// Copies block scales from one layout to another and writes zeros to the padding of `out`. `rows`
/// and `blocks` are the shape of the scale matrix. `in` and `out` must not overlap. Throws
/// ShapeError unless each buffer has scale_bytes() of its layout.
void relayout_scales(std::span<const std::uint8_t> in, ScaleLayout in_layout,
                     std::span<std::uint8_t> out, ScaleLayout out_layout, std::int64_t rows,
                     std::int64_t blocks, Device device = {}, Stream stream = {});

/// Does the same for the operands of a grouped GEMM, where the scales of the groups follow one
/// another. `row_ends` holds the cumulative ends of the groups' rows. Throws ShapeError if the ends
/// decrease or a buffer has the wrong size.
void relayout_grouped_scales(std::span<const std::uint8_t> in, ScaleLayout in_layout,
                             std::span<std::uint8_t> out, ScaleLayout out_layout,
                             std::span<const std::int64_t> row_ends, std::int64_t blocks);

}  // namespace nvfp4
