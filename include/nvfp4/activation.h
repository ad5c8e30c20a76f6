#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "nvfp4/quantize.h"

/// Quantization of activations, fused with what produces them. Each fused operation gives the bits
/// of its unfused chain: the operation with an FP32 result, then quantize_into.
///
/// Common to all: rows are tokens, blocks run along the rows, K % 16 == 0. Of QuantizeOptions,
/// `quantizer`, `layout`, `scope`, `global`, `backend` and `stream` apply; the global scales of the
/// rows (GlobalScope::vector) or of the tensor are measured on the values that are quantized,
/// unless they are given. All arguments lie on the device of the input. On CUDA the calls allocate
/// nothing, wait for nothing and can be captured in a graph. They throw ShapeError, ValueError,
/// UnsupportedError, DeviceError. The arithmetic, with its order, is in docs/numerics.md.
namespace nvfp4 {

struct RmsNormOptions {
  float eps = 1e-6f;
  /// If given, x + residual, rounded to the dtype of `residual_out`, takes the place of x.
  MatrixView residual = {};
  MatrixSpan residual_out = {};  ///< the new residual [M, N]; required with residual, may be it
  float* rstd = nullptr;         ///< if given, gets 1 / rms of every row, FP32 [M]
  /// The normalized row is rounded to this type before it is quantized: f32 keeps it, bf16 gives
  /// the bits of a chain whose normalization writes BF16.
  DType intermediate = DType::f32;
};

/// y = (x · rstd) · weight, rstd = 1 / sqrt(mean(x²) + eps). x [M, N], weight FP32 [N], y [M, N] of
/// any dtype.
/// Source: arXiv:1910.07467.
void rms_norm_into(MatrixView x, std::span<const float> weight, MatrixSpan y,
                   const RmsNormOptions& norm = {}, const QuantizeOptions& options = {});
/// The same, quantized; each row is read once.
void rms_norm_quantize_into(MatrixView x, std::span<const float> weight, QuantizedSpan out,
                            const RmsNormOptions& norm = {}, const QuantizeOptions& options = {});

/// y = Σ_h mix[m, h] · streams[m, h, :], added up in the order of h, in FP32. streams [M, h·N],
/// that is [M, h, N], mix FP32 [M, h], h <= 4. Source: manifold-constrained hyper-connections,
/// arXiv:2512.24880.
void mix_streams_into(MatrixView streams, MatrixView mix, MatrixSpan y,
                      const QuantizeOptions& options = {});
/// The mixed stream, RMS-normalized and quantized. norm.residual must be empty.
void mix_rms_norm_quantize_into(MatrixView streams, MatrixView mix, std::span<const float> weight,
                                QuantizedSpan out, const RmsNormOptions& norm = {},
                                const QuantizeOptions& options = {});

struct SwigluOptions {
  /// 0: gate in the first half of the columns, up in the second. Otherwise gate and up alternate in
  /// groups of this many columns, gate first; a power of two.
  int interleave = 0;
  /// gate is clamped to <= limit, up to [-limit, limit]; DeepSeek-V4's swiglu_limit.
  float limit = std::numeric_limits<float>::infinity();
};

/// y = gate · (1 / (1 + e^-gate)) · up. gate_up [M, 2·I], y [M, I] of any dtype.
/// Source: arXiv:2002.05202.
void swiglu_into(MatrixView gate_up, MatrixSpan y, const SwigluOptions& swiglu = {},
                 const QuantizeOptions& options = {});
void swiglu_quantize_into(MatrixView gate_up, QuantizedSpan out, const SwigluOptions& swiglu = {},
                          const QuantizeOptions& options = {});

/// Quantizes the rows of every group and writes zeros (codes and scales, all padding too) for the
/// rows of none: group g is rows [starts[g], ends[g]), int32, on the device of x, in order and not
/// overlapping; ranges outside x are cut off. At least one group. Scales are addressed by the row
/// of x. Measured global scales: with tensor scope only the rows of groups count; with vector scope
/// that of a row of no group is 1, as of a row of zeros. Given ones are stored as they are.
void quantize_grouped_into(MatrixView x, std::span<const std::int32_t> starts,
                           std::span<const std::int32_t> ends, QuantizedSpan out,
                           const QuantizeOptions& options = {});

enum class IndexType : std::uint8_t { i8, u8, i16, u16, i32, u32, i64, u64 };

/// The routing of tokens to experts, [M, top_k]; strides in elements.
struct Routing {
  const void* ids = nullptr;
  IndexType id_type = IndexType::i32;
  std::int64_t id_stride = 0;
  const float* weights = nullptr;
  std::int64_t weight_stride = 0;
  std::int64_t rows = 0, top_k = 0;
};
struct StagedRouting {
  std::int64_t* ids = nullptr;
  std::int64_t id_stride = 0;
  float* weights = nullptr;
  std::int64_t weight_stride = 0;
};

/// Everything that a mixture-of-experts GEMM wants of its input, in one launch: `hidden` quantized
/// (layout packed_row_major is int32 [M, K/64]), the expert ids as int64 and the weights.
/// global: given, or measured for each row; {1, 1} reproduces a kernel without global scale.
void stage_moe_into(MatrixView hidden, const Routing& routing, QuantizedSpan out,
                    const StagedRouting& staged, const QuantizeOptions& options = {});

/// A quantized activation that several consumers share: quantized once, cheap to copy, immutable.
class QuantizedActivation {
 public:
  QuantizedActivation() = default;
  explicit QuantizedActivation(QuantizedMatrix matrix, Matrix rstd = {})
      : matrix_(std::make_shared<const QuantizedMatrix>(std::move(matrix))),
        rstd_(std::make_shared<const Matrix>(std::move(rstd))) {}

  QuantizedView view() const { return matrix_ ? matrix_->view() : QuantizedView{}; }
  /// 1 / rms of every row, FP32 [M, 1], if a normalization made this; else empty.
  MatrixView rstd() const { return rstd_ ? rstd_->view() : MatrixView{}; }
  std::int64_t rows() const { return view().shape.rows; }
  std::int64_t cols() const { return view().shape.cols; }

 private:
  std::shared_ptr<const QuantizedMatrix> matrix_;
  std::shared_ptr<const Matrix> rstd_;
};

/// The operations above with a result of their own, per-row global scales unless options say
/// otherwise.
QuantizedActivation quantize_activation(MatrixView x,
                                        QuantizeOptions options = {.scope = GlobalScope::vector});
QuantizedActivation rms_norm_quantize(MatrixView x, std::span<const float> weight,
                                      const RmsNormOptions& norm = {},
                                      QuantizeOptions options = {.scope = GlobalScope::vector});
QuantizedActivation swiglu_quantize(MatrixView gate_up, const SwigluOptions& swiglu = {},
                                    QuantizeOptions options = {.scope = GlobalScope::vector});

}  // namespace nvfp4
