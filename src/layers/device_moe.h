#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "backends/device_backend.h"
#include "layers/fragments.h"
#include "layers/input.h"
#include "nvfp4/moe.h"

namespace nvfp4 {

/// The mixture-of-experts layer on a GPU: the same sums in the same order as on the CPU, but of
/// results in BF16 where out is BF16, one kernel after the other on one stream. Nothing is known of
/// the routing on the host: every step works on T · top_k rows.
class DeviceMoe {
 public:
  /// `input`: how the layer's input is quantized.
  DeviceMoe(const char* op, std::span<const ExpertWeights> routed,
            std::span<const ExpertWeights> shared, const MoeOptions& options,
            const InputQuantizer& input);

  std::int64_t weight_bytes() const;

  /// Arguments are validated, but for what only the products ask of x.
  void forward(const MatrixView& x, const Routing& routing, const MatrixSpan& out,
               Stream stream) const;
  void forward(const QuantizedView& x, const Routing& routing, const MatrixSpan& out,
               Stream stream) const;

 private:
  /// Experts of one shape, or a shared one.
  struct Experts {
    FragmentWeights gate_up;               ///< [E, 2·I, K], gate above up, packed so or for SwiGLU
    FragmentWeights down;                  ///< [E, K, I]
    std::vector<GlobalScale> down_scales;  ///< of the input of down: none, or one for each expert
    Matrix down_scales_there;              ///< the same on the device, as pairs of floats

    std::int64_t count() const { return down.groups(); }
    std::int64_t hidden() const { return down.rows(); }
    std::int64_t intermediate() const { return down.cols(); }
  };
  /// What a call needs beside its arguments; on the device.
  struct Workspace {
    QuantizedRows x, gathered_x, activated;
    Rows gathered, gate_up, hidden, down, shared, sum, decoded, row_scales;
    Rows row_ends, row_of, token_of, expert_of, counts;
  };

  Experts make_experts(const char* op, std::span<const ExpertWeights> list, std::int64_t k) const;
  void reserve() const;
  bool w4a4() const { return options_.scheme == Scheme::nvfp4; }

  /// How the input of down is quantized, before anything is known of its rows.
  InputQuantizer activation_quantizer(const Experts& experts) const;

  /// Which expert a row goes to: the routed ones by their order, or every choice of a token is a
  /// row of its own; or there is but one.
  struct Rule {
    const DispatchJob* order = nullptr;
    const Routing* choices = nullptr;
    bool settled = true;  ///< the kernel before does not write what choices say
  };
  /// Whether the rows of so few tokens need no order.
  bool takes_choices(const Routing& routing) const;

  template <class X>
  void run(const X& x, const Routing& routing, const MatrixSpan& out, Stream stream) const;
  template <class X>
  MatrixView run_shared(const X& x, std::int64_t tokens, Stream stream) const;
  template <class X>
  void run_experts(const Experts& experts, const X& x, std::int64_t rows, const Rule& rule,
                   const MatrixSpan& out, Stream stream) const;
  template <class X>
  void product(const X& x, const FragmentWeights& w, const Rule& rule, const MatrixSpan& out,
               Stream stream) const;
  /// SwiGLU of gate and up of x, for down: W4A16, and W4A4.
  template <class X>
  void hidden(const Experts& experts, const X& x, const Rule& rule, const MatrixSpan& out,
              Stream stream) const;
  template <class X>
  QuantizedView quantized_hidden(const Experts& experts, const X& x, std::int64_t rows,
                                 const Rule& rule, Stream stream) const;
  template <class X>
  TensorCoreGemmOptions product_options(const X& x, const Rule& rule, Stream stream) const;
  /// The global scale of each row, that of its expert.
  GlobalScales row_scales(const Experts& experts, std::int64_t rows, const Rule& rule,
                          Stream stream) const;

  DispatchJob order(const Routing& routing, Stream stream) const;
  MatrixView gather(const MatrixView& x, const DispatchJob& routed) const;
  QuantizedView gather(const QuantizedView& x, const DispatchJob& routed) const;

  MoeOptions options_;
  InputQuantizer input_;
  Device device_;
  Experts routed_;
  std::vector<Experts> shared_;  ///< one each
  mutable std::mutex mutex_;     ///< of work_
  mutable Workspace work_;
};

}  // namespace nvfp4
