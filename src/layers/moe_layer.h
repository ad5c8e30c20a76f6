#pragma once

#include <span>
#include <variant>
#include <vector>

#include "backends/gemm_backend.h"
#include "layers/input.h"
#include "layers/scratch.h"
#include "nvfp4/moe.h"

namespace nvfp4 {

/// Returns memory for `count` values of 4 bytes.
template <class T>
T* words(Rows& memory, std::int64_t count, Device device) {
  return static_cast<T*>(memory.get(DType::f32, 1, count, device).data);
}

/// The mixture-of-experts layer on any device: steps of gemm_backend.h between GEMMs. On a GPU the
/// host does not read the routing, so every step processes T · top_k rows.
class MoeLayer {
 public:
  MoeLayer(const char* op, std::span<const ExpertWeights> routed,
           std::span<const ExpertWeights> shared, const MoeOptions& options);

  /// Takes routed experts that are packed. With W4A4, `input_scale` and `down_scales` are the
  /// stored scales of the inputs, one or for each expert. Throws ShapeError, UnsupportedError.
  MoeLayer(const char* op, PackedWeights gate_up, PackedWeights down,
           std::optional<GlobalScale> input_scale, std::vector<GlobalScale> down_scales,
           const MoeOptions& options);

  /// The weights of experts with one shape, or of one shared expert.
  struct Experts {
    PackedWeights gate_up;                 ///< [E, 2·I, K], gate above up
    PackedWeights down;                    ///< [E, K, I]
    bool fused = false;                    ///< true if gate_up is packed for GEMMs with SwiGLU
    std::vector<GlobalScale> down_scales;  ///< for the input of down: empty, or one for each expert
    Matrix down_scales_there;              ///< the same on the device, as pairs of floats

    std::int64_t count() const { return down.groups(); }
    std::int64_t hidden() const { return down.rows(); }
    std::int64_t intermediate() const { return down.cols(); }
  };
  const Experts& routed() const { return routed_; }
  std::int64_t shared_count() const { return std::ssize(shared_); }
  const MoeOptions& options() const { return options_; }
  std::int64_t weight_bytes() const;

  QuantizedActivation quantize(const char* op, const MatrixView& x, Stream stream) const {
    return input_(op, options_.scheme, x, stream);
  }
  void forward(const MatrixView& x, const Routing& routing, const MatrixSpan& out,
               Stream stream) const;
  void forward(const QuantizedView& x, const Routing& routing, const MatrixSpan& out,
               Stream stream) const;

  /// The caller's memory for one call on a GPU, with any values: plans of this layer have no split
  /// K, whose flags must be zero.
  struct Memory {
    std::span<std::byte> rows, workspace;
  };
  /// Returns the size of Memory::rows in bytes for calls of `tokens` tokens, on a GPU.
  std::int64_t memory_bytes(std::int64_t tokens, std::int64_t top_k, DType out) const;
  /// Returns the size of Memory::workspace in bytes for the same.
  std::int64_t workspace_bytes(std::int64_t tokens, std::int64_t top_k) const;
  /// Allocates nothing. Otherwise as the other forward(), on a GPU.
  void forward(const MatrixView& x, const Routing& routing, const MatrixSpan& out, Stream stream,
               const Memory& memory) const;

 private:
  using X = std::variant<MatrixView, QuantizedView>;

  /// The memory of a call on the device, in addition to its arguments.
  struct Work {
    QuantizedRows x, gathered_x, activated;
    Rows gathered, gate_up, hidden, down, shared, sum, workspace, row_scales;
    Rows row_ends, row_of, token_of, expert_of, counts;
  };
  /// The assignment of rows to experts. Routed rows have an order, or each choice of a token is a
  /// row. Without both there is one expert.
  struct Rule {
    const DispatchJob* order = nullptr;
    const Routing* choices = nullptr;
    bool settled = true;  ///< true if the work enqueued last does not write the choices
  };
  /// A call, or the part of its tokens that is processed together.
  struct Call {
    Work& work;
    Stream stream;
  };

  Experts make_experts(const char* op, std::span<const ExpertWeights> list, std::int64_t k) const;
  /// Sets the scales for the input of down if they are used: one for each expert.
  void set_down_scales(Experts& experts, std::vector<GlobalScale> scales, std::size_t count) const;
  bool quantizes_fused(const Experts& experts) const;
  void reserve() const;
  /// Places the memory of a call in the arena.
  void place(Work& work, Arena& arena, std::int64_t tokens, std::int64_t top_k, DType out) const;
  void forward_on(Work& work, const MatrixView& x, const Routing& routing, const MatrixSpan& out,
                  Stream stream) const;
  bool w4a4() const { return options_.scheme == Scheme::w4a4; }
  bool on_cpu() const { return options_.device.type == DeviceType::cpu; }
  Device device() const { return options_.device; }
  const GemmBackend& backend() const { return gemm_backend(options_.device); }
  std::int64_t tokens_at_a_time(std::int64_t top_k) const;
  InputQuantizer down_quantizer(const Experts& experts) const;
  bool takes_choices(const Routing& routing) const;
  DType down_type(DType out) const;

  void require_call(std::int64_t tokens, std::int64_t cols, const Routing& routing,
                    const MatrixSpan& out) const;
  template <class View>
  void run_in_parts(const View& x, const Routing& routing, const MatrixSpan& out,
                    const Call& call) const;
  void run(const X& x, const Routing& routing, const MatrixSpan& out, const Call& call) const;
  MatrixView run_shared(const X& x, std::int64_t tokens, const Call& call) const;
  void run_experts(const Experts& experts, const X& x, std::int64_t rows, const Rule& rule,
                   const MatrixSpan& out, const Call& call) const;
  void product(const PackedWeights& w, GemmDescription description, GemmArguments arguments,
               const Rule& rule, const Call& call) const;
  GemmDescription description(const PackedWeights& w, std::int64_t rows, const Rule& rule) const;
  /// Returns the description of the GEMM of gate and up, with SwiGLU if the weights are packed so.
  GemmDescription gate_up_description(const Experts& experts, std::int64_t rows,
                                      const Rule& rule) const;
  /// Returns SwiGLU of gate and up of x, the input of down, for W4A16.
  MatrixView hidden(const Experts& experts, const X& x, std::int64_t rows, const Rule& rule,
                    const Call& call) const;
  QuantizedView quantized_hidden(const Experts& experts, const X& x, std::int64_t rows,
                                 const Rule& rule, const Call& call) const;
  MatrixSpan gate_up_sums(const Experts& experts, const X& x, std::int64_t rows, const Rule& rule,
                          const Call& call) const;
  /// Returns the global scale of each row, which is that of its expert.
  GlobalScales row_scales(const Experts& experts, std::int64_t rows, const Rule& rule,
                          const Call& call) const;
  DispatchJob order(const Routing& routing, const Call& call) const;
  X gather(const X& x, const DispatchJob& routed, const Call& call) const;

  MoeOptions options_;
  InputQuantizer input_;
  Experts routed_;
  std::vector<Experts> shared_;  ///< one entry for each shared expert
  mutable Scratch<Work> work_;
};

}  // namespace nvfp4
