#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nvfp4/activation.h"
#include "nvfp4/quantize.h"
#include "nvfp4/scheme.h"

/// Linear layers with NVFP4 weights: y = x · Wᵀ + bias. A layer holds its weights packed for its
/// device. Layers are immutable, cheap to copy and usable from many threads.
///
/// On a GPU (from sm_80 on) calls enqueue work on their stream and return. All operands are on that
/// GPU. In W4A16 x is BF16 or FP16, aligned as gemm() requires. Calls of one
/// layer share memory: the caller must not let them overlap on several streams. With max_tokens,
/// calls allocate nothing and can be captured in a graph. Without it, an input larger than all
/// before allocates memory. That waits for the device, must not happen in a capture, and
/// invalidates graphs that were captured before.
///
/// In W4A4 the input is quantized along its rows, or is a QuantizedActivation that several layers
/// share. In W4A16 the input is used as it is. Results have the bits of gemm().
/// moe.h has the mixture of experts, load_layers.h loads layers from a checkpoint.
namespace nvfp4 {

/// The global scale with which a W4A4 layer quantizes its input.
class ActivationScale {
 public:
  /// The origin of the scale.
  enum class Kind : std::uint8_t { stored, fixed, measured };

  /// A scale that is stored with the layer's weights (a checkpoint's input_scale). Of several
  /// stored scales it is the largest. Without a stored scale, each row is measured.
  ActivationScale() = default;
  /// Returns a fixed scale.
  static ActivationScale fixed(const GlobalScale& scale) {
    return {Kind::fixed, scale, GlobalScope::tensor};
  }
  /// Returns a fixed scale for which the largest magnitude of `sample` just fits. The sample is on
  /// the CPU. Larger activations saturate. `q` must be the activation_quantizer of the layer.
  static ActivationScale calibrated(MatrixView sample, Quantizer q = Quantizer::max) {
    return fixed(GlobalScale::from_amax(amax(sample), q));
  }
  /// Returns a scale that each call measures, for each row or for the whole input. Only with vector
  /// scope is the result of a row independent of the other rows (on a GPU with batch_invariant).
  static ActivationScale measured(GlobalScope scope = GlobalScope::vector) {
    return {Kind::measured, {}, scope};
  }

  Kind kind() const { return kind_; }
  const GlobalScale& scale() const { return scale_; }  ///< only if fixed
  GlobalScope scope() const { return scope_; }

 private:
  ActivationScale(Kind kind, const GlobalScale& scale, GlobalScope scope)
      : kind_(kind), scale_(scale), scope_(scope) {}
  Kind kind_ = Kind::stored;
  GlobalScale scale_;
  GlobalScope scope_ = GlobalScope::vector;
};

/// A weight W [N, K], or its transpose [K, N]. It is NVFP4, or a dense matrix that the layer
/// quantizes. It is on the CPU and is read during the call only.
struct WeightView {
  QuantizedView quantized;  ///< shape.axis gives the direction of K; any layout, blocks of 16
  MatrixView dense;         ///< used if it has a shape
  BlockAxis axis = BlockAxis::rows;
  std::optional<GlobalScale> input_scale;  ///< for ActivationScale()
  std::string name;                        ///< for error messages

  WeightView() = default;
  WeightView(const QuantizedView& w)  // NOLINT: implicit on purpose
      : quantized(w), axis(w.shape.axis) {}
  WeightView(const MatrixView& w, BlockAxis axis_ = BlockAxis::rows)  // NOLINT: implicit on purpose
      : dense(w), axis(axis_) {}

  bool is_quantized() const { return dense.rows == 0 && dense.cols == 0; }
  std::int64_t rows() const { return is_quantized() ? quantized.shape.rows : dense.rows; }
  std::int64_t cols() const { return is_quantized() ? quantized.shape.cols : dense.cols; }
  std::int64_t outputs() const { return axis == BlockAxis::rows ? rows() : cols(); }  ///< N
  std::int64_t inputs() const { return axis == BlockAxis::rows ? cols() : rows(); }   ///< K
};

/// Returns views of `groups` matrices that are one below the other: [G·N, K], or [G·K, N] with axis
/// columns. Global scales of rows are divided among the groups. A global scale of a column, or of
/// the tensor, applies to all groups. Throws ShapeError; UnsupportedError for scales that are not
/// linear.
std::vector<WeightView> split_groups(const WeightView& w, std::int64_t groups);

/// The options of Linear and GroupedLinear.
struct LinearOptions {
  Scheme scheme = Scheme::w4a4;
  ActivationScale activation = {};                  ///< global scale of the input, W4A4
  Quantizer activation_quantizer = Quantizer::max;  ///< quantizer of the input, W4A4
  Quantizer weight_quantizer = Quantizer::mse;  ///< for dense weights, each with one global scale
  std::span<const float> bias = {};             ///< empty, or a value for each output; copied
  bool batch_invariant = false;                 ///< see GemmDescription
  /// See GemmDescription; for a GPU. A call with a new number of rows may measure kernels and wait.
  bool autotune = false;
  /// The largest number of rows of an input, or 0. If positive, the constructor allocates all
  /// memory of the calls, and a larger input is a ShapeError.
  std::int64_t max_tokens = 0;
  Device device = {};
  std::string backend = {};  ///< backend of the CPU; "": NVFP4_BACKEND, else the best
  /// Memory on the GPU for split K (GemmDescription::max_workspace_bytes), or empty. It saves time
  /// for 9 to 64 rows. Its size is 6 MB, plus 2·M·K bytes in W4A4. It is zero at first and outlives
  /// the layer. Layers that share it must run one after the other.
  std::span<std::byte> workspace = {};
};

/// A linear layer: y [M, N] = x [M, K] · Wᵀ + bias.
class Linear {
 public:
  Linear() = default;  ///< an empty layer, usable only after an assignment
  /// Packs the weight. Throws ShapeError, ValueError (scales that are NaN or negative),
  /// UnsupportedError (a device without layers).
  explicit Linear(const WeightView& w, const LinearOptions& options = {})
      : Linear(std::span(&w, 1), options) {}
  /// Packs several weights of one input. Their outputs follow one another. Each keeps its global
  /// scales.
  explicit Linear(std::span<const WeightView> parts, const LinearOptions& options = {});

  std::int64_t inputs() const;   ///< K
  std::int64_t outputs() const;  ///< N
  Scheme scheme() const;
  Device device() const;
  std::int64_t weight_bytes() const;  ///< size of packed codes and scales in bytes

  /// Returns the input as forward_into() quantizes it. Throws ValueError unless the scheme is W4A4.
  QuantizedActivation quantize(MatrixView x, Stream stream = {}) const;

  /// Writes x · Wᵀ + bias. x [M, K] and out [M, N] have any dtypes and are on the device of the
  /// layer. M may be 0. Throws ShapeError, ValueError, UnsupportedError, DeviceError.
  void forward_into(MatrixView x, MatrixSpan out, Stream stream = {}) const;
  /// Writes the output for an input that is already quantized, W4A4 only.
  void forward_into(const QuantizedActivation& x, MatrixSpan out, Stream stream = {}) const;
  /// Returns the output as a matrix of its own. Throws as forward_into().
  Matrix forward(MatrixView x, DType out = DType::bf16, Stream stream = {}) const;
  /// Returns the same for an input that is already quantized, W4A4 only.
  Matrix forward(const QuantizedActivation& x, DType out = DType::bf16, Stream stream = {}) const;

 private:
  struct Impl;
  const Impl& impl() const;
  std::shared_ptr<const Impl> impl_;
};

/// A layer of many weights [N, K] of one shape, "bhr,hdr->bhd". Every token uses all groups, or
/// every row uses one of them. For few tokens it costs no more than a Linear.
class GroupedLinear {
 public:
  GroupedLinear() = default;
  /// Packs one weight for each group; see split_groups(). options.bias is empty or has G · N
  /// values. Throws as Linear.
  explicit GroupedLinear(std::span<const WeightView> groups, const LinearOptions& options = {});

  std::int64_t groups() const;   ///< G
  std::int64_t inputs() const;   ///< K of each group
  std::int64_t outputs() const;  ///< N of each group
  Scheme scheme() const;
  Device device() const;
  /// Returns the size of packed codes and scales in bytes.
  std::int64_t weight_bytes() const;

  /// Returns the quantized input [T, G·K], [T, K] or [M, K]. Blocks and global scales run along
  /// whole rows.
  QuantizedActivation quantize(MatrixView x, Stream stream = {}) const;

  /// Writes out[t, g, :] = x[t, g, :] · W_gᵀ. x is [T, G·K], or [T, K] for all groups; out is [T,
  /// G·N].
  void forward_into(MatrixView x, MatrixSpan out, Stream stream = {}) const;
  /// Does the same for an input that is already quantized, W4A4 only.
  void forward_into(const QuantizedActivation& x, MatrixSpan out, Stream stream = {}) const;
  /// Multiplies rows [row_ends[g-1], row_ends[g]) of x [M, K] by W_gᵀ, with M at most 2^31 - 256.
  /// The ends are on the device of the layer. A GPU does not check them and does not wait for them.
  void forward_rows_into(MatrixView x, std::span<const std::int32_t> row_ends, MatrixSpan out,
                         Stream stream = {}) const;
  /// Does the same for an input that is already quantized, W4A4 only.
  void forward_rows_into(const QuantizedActivation& x, std::span<const std::int32_t> row_ends,
                         MatrixSpan out, Stream stream = {}) const;

 private:
  struct Impl;
  const Impl& impl() const;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace nvfp4
