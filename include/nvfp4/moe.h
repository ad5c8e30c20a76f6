#pragma once

#include "nvfp4/layers.h"

namespace nvfp4 {

/// The weights of one gated MLP: down · (silu(gate · x) ∘ (up · x)).
struct ExpertWeights {
  WeightView gate, up;  ///< [I, K]
  WeightView down;      ///< [K, I]
};

/// The options of a Moe layer.
struct MoeOptions {
  Scheme scheme = Scheme::w4a4;
  /// The global scales of the layer's input and of the input of `down`, W4A4. The layer's input is
  /// quantized once for all experts: its stored scale is the largest of all gates and ups. For
  /// `down`, each expert has its own stored scale.
  ActivationScale activation = {}, down_activation = {};
  Quantizer activation_quantizer = Quantizer::max;  ///< quantizer of the inputs, W4A4
  Quantizer weight_quantizer = Quantizer::mse;  ///< for dense weights, each with one global scale
  /// The limit for gate and up, as SwigluOptions::limit.
  float swiglu_limit = std::numeric_limits<float>::infinity();
  /// The type to which W4A16 rounds the input of `down`. On a GPU it is not f32.
  DType intermediate = DType::bf16;
  /// See GemmDescription. W4A4 on CPUs is always batch-invariant, except with tensor scope.
  bool batch_invariant = false;
  bool autotune = false;        ///< see LinearOptions
  std::int64_t max_tokens = 0;  ///< see LinearOptions; for max_top_k experts a token
  std::int64_t max_top_k = 8;
  Device device = {};
  std::string backend = {};
};

/// A mixture-of-experts layer. Each token is processed by the experts of its routing and by all
/// shared experts.
///
///     y[t] = Σ_s shared_s(x[t]) + Σ_k weights[t, k] · expert_ids[t, k](x[t])
///
/// The sum is FP32, in this order, with rounded GEMM results; it is rounded once to the type of
/// `out`. Gate and up are FP32 until SwiGLU. Its result is FP32 until it is quantized (W4A4) or
/// rounded to `intermediate` (W4A16). Results do not depend on the number of threads; in W4A4 on
/// CPUs they do not depend on the backend. An id that occurs twice in a row counts twice.
///
/// For GPUs see layers.h. The routing is then on the GPU, too, and at most 1024 experts are routed
/// ones. The order of these sums is the same; within a GEMM it is that of the tensor cores. If
/// `out` is BF16, results of routed experts are rounded to BF16 before they are multiplied by their
/// weights. This halves the memory traffic. Ids are not checked: an id outside 0 … E - 1 has no
/// expert and adds nothing.
class Moe {
 public:
  Moe() = default;
  /// Packs the experts. All routed experts have one shape; shared experts may have another I. There
  /// is at least one routed expert. Throws as Linear.
  explicit Moe(std::span<const ExpertWeights> routed, std::span<const ExpertWeights> shared = {},
               const MoeOptions& options = {});

  std::int64_t experts() const;         ///< E
  std::int64_t shared_experts() const;  ///< number of shared experts
  std::int64_t hidden() const;          ///< K
  std::int64_t intermediate() const;    ///< I of a routed expert
  Scheme scheme() const;
  Device device() const;
  std::int64_t weight_bytes() const;  ///< size of packed codes and scales in bytes

  /// Returns the input of gate and up as forward_into() quantizes it. Throws ValueError unless
  /// W4A4.
  QuantizedActivation quantize(MatrixView x, Stream stream = {}) const;

  /// Writes the layer's output. x [M, K], out [M, K] of any dtypes; the routing is for M tokens,
  /// see activation.h. Throws ShapeError, ValueError (on the CPU for an id outside 0 … E - 1,
  /// before anything is written), UnsupportedError, DeviceError.
  void forward_into(MatrixView x, const Routing& routing, MatrixSpan out, Stream stream = {}) const;
  /// Writes the output for an input that is already quantized, W4A4 only.
  void forward_into(const QuantizedActivation& x, const Routing& routing, MatrixSpan out,
                    Stream stream = {}) const;

 private:
  struct Impl;
  const Impl& impl() const;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace nvfp4
