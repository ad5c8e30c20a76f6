#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "nvfp4/quantize.h"

/// Quantization of activations, fused with the operation that produces them. Each fused operation
/// gives the bits of its unfused chain: the operation with an FP32 result, then quantize_into().
///
/// Common to all operations: rows are tokens, blocks run along the rows, K % 16 == 0. Of
/// QuantizeOptions, `quantizer`, `layout`, `scope`, `global`, `backend` and `stream` apply. The
/// default quantizer is max. Global scales that are not given are measured on the values that are
/// quantized. They are for each row (GlobalScope::vector) or for the tensor. All arguments are on
/// the device of the input. On CUDA the calls allocate nothing, wait for nothing and can be
/// captured in a graph. They throw ShapeError, ValueError, UnsupportedError, DeviceError. The
/// arithmetic and its order are in docs/numerics.md.
namespace nvfp4 {

/// The options of the operations with an RMS normalization.
struct RmsNormOptions {
  float eps = 1e-6f;
  /// A matrix [M, N] that is added to x. The sum, rounded to the dtype of `residual_out`, replaces
  /// x.
  MatrixView residual = {};
  /// The new residual [M, N]. It is required with `residual` and may be the same memory.
  MatrixSpan residual_out = {};
  float* rstd = nullptr;  ///< receives 1 / rms of every row, FP32 [M]; may be null
  /// The type to which the normalized row is rounded before it is quantized. f32 does not round.
  /// bf16 gives the bits of a chain whose normalization writes BF16.
  DType intermediate = DType::f32;
};

/// Writes y = (x · rstd) · weight with rstd = 1 / sqrt(mean(x²) + eps).
/// Shapes: x [M, N], weight FP32 [N], y [M, N] of any dtype.
/// Source: arXiv:1910.07467.
void rms_norm_into(MatrixView x, std::span<const float> weight, MatrixSpan y,
                   const RmsNormOptions& norm = {}, const QuantizeOptions& options = {});
/// Normalizes as rms_norm_into() and quantizes the result. Each row is read once.
void rms_norm_quantize_into(MatrixView x, std::span<const float> weight, QuantizedSpan out,
                            const RmsNormOptions& norm = {}, const QuantizeOptions& options = {});

/// Writes y = Σ_h mix[m, h] · streams[m, h, :], summed in FP32 in the order of h.
/// Shapes: streams [M, h·N], that is [M, h, N], mix FP32 [M, h], h <= 4, y [M, N] of any dtype.
/// Source: manifold-constrained hyper-connections, arXiv:2512.24880.
void mix_streams_into(MatrixView streams, MatrixView mix, MatrixSpan y,
                      const QuantizeOptions& options = {});
/// Mixes the streams, RMS-normalizes the sum and quantizes it. norm.residual must be empty.
void mix_rms_norm_quantize_into(MatrixView streams, MatrixView mix, std::span<const float> weight,
                                QuantizedSpan out, const RmsNormOptions& norm = {},
                                const QuantizeOptions& options = {});

/// The options of SwiGLU.
struct SwigluOptions {
  /// The order of the columns. 0: gate in the first half, up in the second. Otherwise gate and up
  /// alternate in groups of this many columns, gate first; a power of two.
  int interleave = 0;
  /// The upper limit of gate; up is clamped to [-limit, limit]. DeepSeek-V4's swiglu_limit.
  float limit = std::numeric_limits<float>::infinity();
};

/// Writes y = gate · (1 / (1 + e^-gate)) · up.
/// Shapes: gate_up [M, 2·I], y [M, I] of any dtype.
/// Source: arXiv:2002.05202.
void swiglu_into(MatrixView gate_up, MatrixSpan y, const SwigluOptions& swiglu = {},
                 const QuantizeOptions& options = {});
/// Computes SwiGLU as swiglu_into() and quantizes the result, [M, I].
void swiglu_quantize_into(MatrixView gate_up, QuantizedSpan out, const SwigluOptions& swiglu = {},
                          const QuantizeOptions& options = {});

/// Quantizes the rows of every group. For rows of no group it writes zeros, to codes, scales and
/// padding. Group g is rows [starts[g], ends[g]); the int32 arrays are on the device of x. There is
/// at least one group. Groups are in order and do not overlap; ranges outside x are cut off. Scales
/// are addressed by the row of x. Measured global scales: with tensor scope only the rows of groups
/// count; with vector scope a row of no group has 1, like a row of zeros. Given scales are stored
/// unchanged.
void quantize_grouped_into(MatrixView x, std::span<const std::int32_t> starts,
                           std::span<const std::int32_t> ends, QuantizedSpan out,
                           const QuantizeOptions& options = {});

/// The integer types of expert ids.
enum class IndexType : std::uint8_t { i8, u8, i16, u16, i32, u32, i64, u64 };

/// The routing of tokens to experts, [M, top_k]. Strides are in elements.
struct Routing {
  const void* ids = nullptr;
  IndexType id_type = IndexType::i32;
  std::int64_t id_stride = 0;
  const float* weights = nullptr;
  std::int64_t weight_stride = 0;
  std::int64_t rows = 0, top_k = 0;
};
/// Memory for the routing that stage_moe_into() writes, [M, top_k]. Strides are in elements.
struct StagedRouting {
  std::int64_t* ids = nullptr;
  std::int64_t id_stride = 0;
  float* weights = nullptr;
  std::int64_t weight_stride = 0;
};

/// Writes the inputs of a mixture-of-experts GEMM in one launch: the quantized `hidden`, the expert
/// ids as int64 and the weights. Layout packed_row_major is int32 [M, K/64]. Global scales are
/// given, or measured for each row. {1, 1} reproduces a kernel without global scale.
void stage_moe_into(MatrixView hidden, const Routing& routing, QuantizedSpan out,
                    const StagedRouting& staged, const QuantizeOptions& options = {});

/// A quantized activation that several layers share. It is immutable and cheap to copy.
class QuantizedActivation {
 public:
  QuantizedActivation() = default;
  explicit QuantizedActivation(QuantizedMatrix matrix, Matrix rstd = {})
      : matrix_(std::make_shared<const QuantizedMatrix>(std::move(matrix))),
        rstd_(std::make_shared<const Matrix>(std::move(rstd))) {}

  QuantizedView view() const { return matrix_ ? matrix_->view() : QuantizedView{}; }
  /// Returns 1 / rms of every row, FP32 [M, 1], or an empty view if there was no normalization.
  MatrixView rstd() const { return rstd_ ? rstd_->view() : MatrixView{}; }
  std::int64_t rows() const { return view().shape.rows; }
  std::int64_t cols() const { return view().shape.cols; }

 private:
  std::shared_ptr<const QuantizedMatrix> matrix_;
  std::shared_ptr<const Matrix> rstd_;
};

/// Returns the result of quantize_into(), rms_norm_quantize_into() or swiglu_quantize_into() in
/// memory of its own. By default each row has a global scale.
QuantizedActivation quantize_activation(MatrixView x,
                                        QuantizeOptions options = {.scope = GlobalScope::vector});
QuantizedActivation rms_norm_quantize(MatrixView x, std::span<const float> weight,
                                      const RmsNormOptions& norm = {},
                                      QuantizeOptions options = {.scope = GlobalScope::vector});
QuantizedActivation swiglu_quantize(MatrixView gate_up, const SwigluOptions& swiglu = {},
                                    QuantizeOptions options = {.scope = GlobalScope::vector});

}  // namespace nvfp4
