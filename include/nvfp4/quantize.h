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

/// How the E4M3 scale of a block is chosen.
enum class Quantizer : std::uint8_t {
  max,            ///< amax / 6, bit for bit as TransformerEngine does
  four_over_six,  ///< amax / 6 or amax / 4, whichever has the smaller squared error; a tie takes /6
  mse,            ///< of all 126 positive scales the one with the least (weighted) squared error;
                  ///< a tie takes the lowest
};
std::string_view quantizer_name(Quantizer q);
/// Throws ValueError that lists the known names.
Quantizer quantizer_from_name(std::string_view name);
std::vector<std::string> quantizer_names();

/// A global scale in both senses. Both are kept because a reciprocal taken twice is off by an ulp.
struct GlobalScale {
  float multiplier = 1.0f;  ///< x ≈ e2m1 · scale · multiplier; ModelOpt's weight_scale_2
  float divisor = 1.0f;     ///< 1 / multiplier; compressed-tensors' weight_global_scale

  /// amax / (6 · scale_max(q)) for a tensor (or vector) whose largest magnitude is `amax`.
  /// An amax of zero or infinity gives 1. NaN is not allowed.
  static GlobalScale from_amax(float amax, Quantizer q);
  /// Throws ValueError unless finite and > 0.
  static GlobalScale from_multiplier(float multiplier);
  static GlobalScale from_divisor(float divisor);
};

/// The largest block scale that from_amax leaves room for: 448 for max, 256 for the others, which
/// may then also round upwards without saturating.
float scale_max(Quantizer q);

/// Global scales that the caller gives: one for the tensor, or one for each vector. They lie on the
/// device of the input; a single one may also lie on the host, and is then read during the call.
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
  const GlobalScale& operator[](std::size_t i) const { return data[i]; }  ///< on the CPU only
};

struct QuantizeOptions {
  Quantizer quantizer = Quantizer::max;
  BlockAxis axis = BlockAxis::rows;
  int block = kBlock;  ///< 32 is for four_over_six and mse only
  ScaleLayout layout = ScaleLayout::linear;
  GlobalScope scope = GlobalScope::tensor;
  /// Measured from x when empty; otherwise one for the tensor, or one for each vector.
  GlobalScales global = {};
  /// mse only: one weight >= 0 for each of the K positions; the cost is Σ w_k (x_k - x̂_k)². On the
  /// device of x; on CUDA they are not checked.
  std::span<const float> weights = {};
  /// mse only: FP32 [K, block], rows j·block … of it the symmetric block H_j of the Hessian for
  /// block j of K (see gram_into); the cost is rᵀ H_j r, r = x - x̂. Excludes weights.
  MatrixView hessian = {};
  /// Refuse NaN and infinities with a ValueError that names the first one's index. Not on CUDA,
  /// where it would have to wait for the device: UnsupportedError.
  bool check_finite = false;
  std::string_view backend = {};  ///< of the CPU; "" takes NVFP4_BACKEND, else the best
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

/// The same into caller-owned memory. `out.shape` must be what `options` and `x` imply, else
/// ShapeError. Every byte of codes, scales (padding too) and global_scale is written.
void quantize_into(MatrixView x, QuantizedSpan out, const QuantizeOptions& options = {});

/// Largest magnitude of the matrix, on the CPU; NaN is ignored, 0 for an empty one.
float amax(MatrixView x, std::string_view backend = {});

/// The same for the tensor (1 value) or for each vector of blocks, into memory on the device of x.
/// Throws ShapeError, UnsupportedError, DeviceError.
void amax_into(MatrixView x, float* out, GlobalScope scope = GlobalScope::tensor,
               BlockAxis axis = BlockAxis::rows, std::string_view backend = {}, Stream stream = {});

/// GlobalScale::from_amax for `count` values, amaxes and result on `device`; a NaN counts as 0.
void global_scales_into(const float* amaxes, GlobalScale* out, std::int64_t count, Quantizer q,
                        Device device = {}, Stream stream = {});

/// H_j = X_jᵀ X_j for every block j of `block` columns of X [T, K], one below the other in `out`,
/// FP32 [K, block]. Added to what `out` holds if `accumulate`. The order of additions is part of
/// docs/numerics.md. Throws ShapeError, UnsupportedError, DeviceError.
void gram_into(MatrixView x, MatrixSpan out, bool accumulate = false, Stream stream = {});

/// (e2m1 · scale) is exact; times global_scale rounds once to FP32; the cast rounds to nearest
/// even. `out` has the shape of the matrix that `q` stands for. Throws ShapeError,
/// UnsupportedError.
void dequantize_into(QuantizedView q, MatrixSpan out, std::string_view backend = {},
                     Stream stream = {});
Matrix dequantize(QuantizedView q, DType dtype = DType::f32, std::string_view backend = {});

struct QuantizationError {
  double squared_error = 0;  ///< Σ (x − x̂)²
  double squared_norm = 0;   ///< Σ x²
};
/// What `q` loses of `x`, both on the CPU. The order of additions is part of docs/numerics.md: the
/// same bits on every backend and for any number of threads. Throws ShapeError, UnsupportedError.
QuantizationError quantization_error(MatrixView x, QuantizedView q, std::string_view backend = {});

/// Moves block scales from one layout to another; every padding byte of `out` is written as zero.
/// `rows` and `blocks` are those of the scale matrix; `in` and `out` must not overlap.
/// Throws ShapeError if a buffer's size is not scale_bytes() of its layout.
void relayout_scales(std::span<const std::uint8_t> in, ScaleLayout in_layout,
                     std::span<std::uint8_t> out, ScaleLayout out_layout, std::int64_t rows,
                     std::int64_t blocks, Device device = {}, Stream stream = {});

/// The same for operands in groups, one group's scales after the other's (numerics of the grouped
/// GEMM). `row_ends` are the cumulative ends of the groups' rows. Throws ShapeError if they
/// decrease or a buffer has the wrong size.
void relayout_grouped_scales(std::span<const std::uint8_t> in, ScaleLayout in_layout,
                             std::span<std::uint8_t> out, ScaleLayout out_layout,
                             std::span<const std::int64_t> row_ends, std::int64_t blocks);

}  // namespace nvfp4
