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

/// Linear layers with NVFP4 weights: y = x · Wᵀ + bias. They hold their weights packed, as the
/// device wants them, are cheap to copy and never change; calls from many threads are fine.
///
/// On a GPU (from sm_80 on) calls enqueue work on their stream and return; x, out and all that a
/// call reads lie there, x in BF16 or FP16 (W4A16), aligned as gemm() wants it. Calls of one layer
/// share memory: on several streams, the caller must keep them from overlapping. With max_tokens
/// they allocate nothing and can be captured in a graph; without, a larger input than any before
/// takes memory, which waits for the device and must not happen in a capture, and graphs that were
/// captured before it are void.
///
/// In scheme nvfp4 (W4A4) the input is quantized along its rows, or comes as a QuantizedActivation
/// that several layers share; in nvfp4a16 it is used as it is. Results have the bits of gemm(). The
/// mixture of experts is in moe.h, loading from a checkpoint in load_layers.h.
namespace nvfp4 {

/// The global scale with which a W4A4 layer quantizes its input.
class ActivationScale {
 public:
  enum class Kind : std::uint8_t { stored, fixed, measured };

  /// Stored: what the layer's weights say of its input (a checkpoint's input_scale), the largest if
  /// they say several things; measured for each row where they say nothing.
  ActivationScale() = default;
  static ActivationScale fixed(const GlobalScale& scale) {
    return {Kind::fixed, scale, GlobalScope::tensor};
  }
  /// Fixed, such that the largest magnitude of `sample`, which lies on the CPU, just fits. Larger
  /// activations saturate. `q` must be the activation_quantizer of the layer.
  static ActivationScale calibrated(MatrixView sample, Quantizer q = Quantizer::max) {
    return fixed(GlobalScale::from_amax(amax(sample), q));
  }
  /// Measured in every call, for each row or for the whole input. Of the two only the first leaves
  /// the result of a row independent of the other rows (on a GPU with batch_invariant).
  static ActivationScale measured(GlobalScope scope = GlobalScope::vector) {
    return {Kind::measured, {}, scope};
  }

  Kind kind() const { return kind_; }
  const GlobalScale& scale() const { return scale_; }  ///< if fixed
  GlobalScope scope() const { return scope_; }

 private:
  ActivationScale(Kind kind, const GlobalScale& scale, GlobalScope scope)
      : kind_(kind), scale_(scale), scope_(scope) {}
  Kind kind_ = Kind::stored;
  GlobalScale scale_;
  GlobalScope scope_ = GlobalScope::vector;
};

/// A weight W [N, K], or its transpose [K, N]: NVFP4 as it is, or a dense matrix, which the layer
/// quantizes. It lies on the CPU and is read during the call only.
struct WeightView {
  QuantizedView quantized;  ///< its shape.axis says where K is; any layout, blocks of 16
  MatrixView dense;         ///< used if it has a shape
  BlockAxis axis = BlockAxis::rows;
  std::optional<GlobalScale> input_scale;  ///< ActivationScale() takes it
  std::string name;                        ///< for messages

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

/// The matrices of `groups` groups that lie one below the other: [G·N, K], or [G·K, N] with axis
/// columns. A global scale for each row is divided among the groups; one for each column, or for
/// the tensor, is that of all of them. Throws ShapeError; UnsupportedError for scales that are not
/// linear.
std::vector<WeightView> split_groups(const WeightView& w, std::int64_t groups);

struct LinearOptions {
  Scheme scheme = Scheme::nvfp4;
  ActivationScale activation = {};                  ///< W4A4
  Quantizer activation_quantizer = Quantizer::max;  ///< W4A4
  Quantizer weight_quantizer = Quantizer::mse;      ///< of dense weights; one global scale for each
  std::span<const float> bias = {};                 ///< none, or one for each output; copied
  bool batch_invariant = false;                     ///< as in GemmDescription
  /// As in GemmDescription, on a GPU: calls of a new number of rows may measure kernels, and wait.
  bool autotune = false;
  /// Above 0: all memory that calls need is taken at once, and larger inputs are a ShapeError.
  std::int64_t max_tokens = 0;
  Device device = {};
  std::string backend = {};  ///< of the CPU; "" takes NVFP4_BACKEND, else the best
  /// Of a GPU: none, or memory there for sums of parts of K (GemmDescription::max_workspace_bytes),
  /// zero at first: less time for 9 to 64 rows. 6 MB, in W4A4 and 2·M·K bytes. It outlives the
  /// layer; layers that share it run one after the other.
  std::span<std::byte> workspace = {};
};

/// y [M, N] = x [M, K] · Wᵀ + bias.
class Linear {
 public:
  Linear() = default;  ///< empty: only assignment makes it usable
  /// Throws ShapeError, ValueError (scales that are NaN or negative), UnsupportedError (a device
  /// without layers).
  explicit Linear(const WeightView& w, const LinearOptions& options = {})
      : Linear(std::span(&w, 1), options) {}
  /// Several weights of one input: their outputs follow one another. Each keeps its global scales.
  explicit Linear(std::span<const WeightView> parts, const LinearOptions& options = {});

  std::int64_t inputs() const;   ///< K
  std::int64_t outputs() const;  ///< N
  Scheme scheme() const;
  Device device() const;
  std::int64_t weight_bytes() const;  ///< of packed codes and scales

  /// What forward_into(x, ...) multiplies. Throws ValueError unless the scheme is W4A4.
  QuantizedActivation quantize(MatrixView x, Stream stream = {}) const;

  /// x [M, K] and out [M, N] of any dtypes, on the device of the layer; M may be 0. Throws
  /// ShapeError, ValueError, UnsupportedError, DeviceError.
  void forward_into(MatrixView x, MatrixSpan out, Stream stream = {}) const;
  /// W4A4 only.
  void forward_into(const QuantizedActivation& x, MatrixSpan out, Stream stream = {}) const;
  Matrix forward(MatrixView x, DType out = DType::bf16, Stream stream = {}) const;
  Matrix forward(const QuantizedActivation& x, DType out = DType::bf16, Stream stream = {}) const;

 private:
  struct Impl;
  const Impl& impl() const;
  std::shared_ptr<const Impl> impl_;
};

/// Many weights [N, K] of one shape, "bhr,hdr->bhd": every token goes to every group, or every row
/// to one of them. Costs nothing extra for few tokens.
class GroupedLinear {
 public:
  GroupedLinear() = default;
  /// One weight for each group; see split_groups(). options.bias: none or G · N. Throws as Linear.
  explicit GroupedLinear(std::span<const WeightView> groups, const LinearOptions& options = {});

  std::int64_t groups() const;   ///< G
  std::int64_t inputs() const;   ///< K, of each group
  std::int64_t outputs() const;  ///< N, of each group
  Scheme scheme() const;
  Device device() const;
  std::int64_t weight_bytes() const;

  /// Of [T, G·K], [T, K] or [M, K]: blocks and global scales go along whole rows.
  QuantizedActivation quantize(MatrixView x, Stream stream = {}) const;

  /// out[t, g, :] = x[t, g, :] · W_gᵀ: x [T, G·K], or [T, K] shared by all groups; out [T, G·N].
  void forward_into(MatrixView x, MatrixSpan out, Stream stream = {}) const;
  void forward_into(const QuantizedActivation& x, MatrixSpan out, Stream stream = {}) const;
  /// Rows [row_ends[g-1], row_ends[g]) of x [M, K] times W_gᵀ, M < 2^31. The ends lie on the device
  /// of the layer; on a GPU they are neither checked nor waited for.
  void forward_rows_into(MatrixView x, std::span<const std::int32_t> row_ends, MatrixSpan out,
                         Stream stream = {}) const;
  void forward_rows_into(const QuantizedActivation& x, std::span<const std::int32_t> row_ends,
                         MatrixSpan out, Stream stream = {}) const;

 private:
  struct Impl;
  const Impl& impl() const;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace nvfp4
