#pragma once

#include "nvfp4/layers.h"

namespace nvfp4 {

/// One gated MLP: down · (silu(gate · x) ∘ (up · x)).
struct ExpertWeights {
  WeightView gate, up;  ///< [I, K]
  WeightView down;      ///< [K, I]
};

struct MoeOptions {
  Scheme scheme = Scheme::nvfp4;
  /// Of the layer's input, quantized once for all experts, and of the input of `down`, W4A4. Stored
  /// ones are the largest of all gates and ups, and each expert's own for its down.
  ActivationScale activation = {}, down_activation = {};
  Quantizer activation_quantizer = Quantizer::max;  ///< W4A4
  Quantizer weight_quantizer = Quantizer::mse;      ///< of dense weights; one global scale for each
  /// Clamps gate and up before SwiGLU, as SwigluOptions::limit.
  float swiglu_limit = std::numeric_limits<float>::infinity();
  /// W4A16: the type to which the input of `down` is rounded; on a GPU not f32.
  DType intermediate = DType::bf16;
  /// As in GemmDescription. W4A4 on CPUs always is, but for tensor scope.
  bool batch_invariant = false;
  bool autotune = false;        ///< as in LinearOptions
  std::int64_t max_tokens = 0;  ///< as in LinearOptions, for max_top_k experts a token
  std::int64_t max_top_k = 8;
  Device device = {};
  std::string backend = {};
};

/// The mixture-of-experts layer: each token goes through the experts that its routing names, and
/// through all shared ones.
///
///     y[t] = Σ_s shared_s(x[t]) + Σ_k weights[t, k] · expert_ids[t, k](x[t])
///
/// added up in FP32 in this order, products rounded; rounded once to the type of `out`. Gate and up
/// are FP32 until SwiGLU, as is their result until it is quantized (W4A4) or rounded to
/// `intermediate` (W4A16). Results do not depend on the number of threads, nor, in W4A4 on
/// CPUs, on the backend. An id may occur twice in a row: it counts twice.
///
/// On a GPU see layers.h; the routing lies there too, and there are at most 1024 routed experts.
/// The order of these sums is the same, that within a product the tensor cores'. If `out` is BF16,
/// results of routed experts are rounded to BF16 before they are multiplied by their weights, which
/// halves what goes through memory. Ids cannot be checked: one outside 0 … E - 1 names no expert
/// and counts nothing.
class Moe {
 public:
  Moe() = default;
  /// All routed experts have one shape; the shared ones may have another I. At least one routed
  /// expert. Throws as Linear.
  explicit Moe(std::span<const ExpertWeights> routed, std::span<const ExpertWeights> shared = {},
               const MoeOptions& options = {});

  std::int64_t experts() const;         ///< E
  std::int64_t shared_experts() const;  ///< 0 or more
  std::int64_t hidden() const;          ///< K
  std::int64_t intermediate() const;    ///< I of a routed expert
  Scheme scheme() const;
  Device device() const;
  std::int64_t weight_bytes() const;  ///< of packed codes and scales

  /// What forward_into(x, ...) multiplies by gate and up. Throws ValueError unless W4A4.
  QuantizedActivation quantize(MatrixView x, Stream stream = {}) const;

  /// x [M, K], out [M, K] of any dtypes; routing of M tokens, see activation.h. Throws ShapeError,
  /// ValueError (on the CPU an id outside 0 … E - 1; before anything is written), UnsupportedError,
  /// DeviceError.
  void forward_into(MatrixView x, const Routing& routing, MatrixSpan out, Stream stream = {}) const;
  /// W4A4 only.
  void forward_into(const QuantizedActivation& x, const Routing& routing, MatrixSpan out,
                    Stream stream = {}) const;

 private:
  struct Impl;
  const Impl& impl() const;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace nvfp4
