#include "nvfp4/moe.h"

#include <algorithm>
#include <utility>

#include "core/lending_pool.h"
#include "core/require.h"
#include "layers/device_moe.h"
#include "layers/dispatch.h"
#include "layers/input.h"
#include "layers/rows.h"
#include "layers/weights.h"
#include "ops/options.h"
#include "ops/rows.h"

namespace nvfp4 {
namespace {

/// What a call needs beside its arguments.
struct Workspace {
  QuantizedRows x, gathered_x, activated;
  Rows gathered, gate_up, hidden, down, shared, sum;
  std::vector<GlobalScale> row_scales;
};

/// Experts of one shape.
struct Experts {
  std::vector<PackedWeights> gate_up;  ///< [2·I, K], gate above up
  std::vector<PackedWeights> down;     ///< [K, I]
  std::vector<std::optional<GlobalScale>> down_scales;

  std::int64_t count() const { return static_cast<std::int64_t>(down.size()); }
  std::int64_t hidden() const { return down[0].rows(); }
  std::int64_t intermediate() const { return down[0].cols(); }
  std::int64_t weight_bytes() const {
    std::int64_t bytes = 0;
    for (std::size_t e = 0; e < down.size(); ++e) bytes += gate_up[e].bytes() + down[e].bytes();
    return bytes;
  }
};

Experts make_experts(const char* op, std::span<const ExpertWeights> list, std::int64_t k,
                     const MoeOptions& options) {
  Experts experts;
  for (const ExpertWeights& e : list) {
    require_expert(op, e, k, list[0].gate.outputs());
    const WeightView gate_up[] = {e.gate, e.up};
    experts.gate_up.push_back(pack_parts(op, gate_up, options.weight_quantizer, options.backend));
    experts.down.push_back(pack_parts(op, {&e.down, 1}, options.weight_quantizer, options.backend));
    experts.down_scales.push_back(e.down.input_scale);
  }
  return experts;
}

}  // namespace

struct Moe::Impl {
  MoeOptions options;
  InputQuantizer input;
  std::int64_t count = 0, shared_count = 0, hidden = 0, intermediate = 0, bytes = 0;
  std::optional<DeviceMoe> on_device;  ///< on a GPU; else:
  Experts routed;
  std::vector<Experts> shared;  ///< one each
  mutable LendingPool<Workspace> workspaces;

  bool w4a4() const { return options.scheme == Scheme::nvfp4; }

  /// How many tokens go through the experts at a time, to bound the memory of their rows.
  std::int64_t tokens_at_a_time(std::int64_t top_k) const {
    constexpr std::int64_t kBytes = std::int64_t{256} << 20;
    const ActivationScale& a = options.down_activation;
    if (a.kind() == ActivationScale::Kind::measured && a.scope() == GlobalScope::tensor)
      return std::numeric_limits<std::int64_t>::max();  // measured over all of them
    const std::int64_t row = 2 * routed.intermediate() + routed.hidden();
    return std::max<std::int64_t>(
        1, kBytes / (std::max<std::int64_t>(top_k, 1) * row * static_cast<std::int64_t>(4)));
  }

  /// down(SwiGLU(gate_up(x))) in FP32 of rows that belong to experts; x and the result in the
  /// order of `row_ends`.
  template <class X>
  void run_experts(const Experts& experts, const X& x, std::int64_t rows,
                   std::span<const std::int64_t> row_ends, Workspace& work,
                   const MatrixSpan& out) const {
    const GroupedGemmOptions gemm{.batch_invariant = options.batch_invariant,
                                  .backend = options.backend};
    const std::int64_t i = experts.intermediate();
    const MatrixSpan gate_up = work.gate_up.get(DType::f32, rows, 2 * i);
    grouped_gemm_into(x, experts.gate_up, row_ends, gate_up, gemm);
    const SwigluOptions swiglu{.limit = options.swiglu_limit};
    if (!w4a4()) {
      const MatrixSpan h = work.hidden.get(options.intermediate, rows, i);
      swiglu_into(gate_up, h, swiglu, {.backend = options.backend});
      grouped_gemm_into(MatrixView(h), experts.down, row_ends, out, gemm);
      return;
    }
    const InputQuantizer quantizer = down_quantizer(experts, row_ends, work);
    const QuantizedSpan h = work.activated.get(rows, i, quantizer.scope);
    QuantizeOptions o = quantizer.options({});
    if (!work.row_scales.empty()) o.global = work.row_scales;
    swiglu_quantize_into(gate_up, h, swiglu, o);
    grouped_gemm_into(QuantizedView(h), experts.down, row_ends, out, gemm);
  }

  /// Fills work.row_scales if every row has a given scale of its own.
  InputQuantizer down_quantizer(const Experts& experts, std::span<const std::int64_t> row_ends,
                                Workspace& work) const {
    work.row_scales.clear();
    InputQuantizer q(options.down_activation, std::nullopt, options.activation_quantizer,
                     options.backend);
    const auto& stored = experts.down_scales;
    if (options.down_activation.kind() != ActivationScale::Kind::stored ||
        !std::ranges::all_of(stored, [](const auto& s) { return s.has_value(); }))
      return q;
    q.scope = GlobalScope::vector;
    for (std::size_t e = 0; e < stored.size(); ++e)
      work.row_scales.resize(static_cast<std::size_t>(row_ends[e]), *stored[e]);
    return q;
  }

  MatrixSpan gather(const MatrixView& x, std::span<const std::int64_t> tokens,
                    Workspace& work) const {
    const MatrixSpan rows =
        work.gathered.get(x.dtype, static_cast<std::int64_t>(tokens.size()), x.cols);
    gather_rows(x, tokens, rows);
    return rows;
  }
  QuantizedSpan gather(const QuantizedView& x, std::span<const std::int64_t> tokens,
                       Workspace& work) const {
    const QuantizedSpan rows =
        work.gathered_x.get(static_cast<std::int64_t>(tokens.size()), x.shape.cols, x.shape.scope);
    gather_rows(x, tokens, rows);
    return rows;
  }

  /// The shared experts' FP32 sum for all rows of x, or nothing.
  template <class X>
  MatrixView run_shared(const X& x, std::int64_t rows, Workspace& work) const {
    if (shared.empty()) return {};
    const MatrixSpan sum = work.sum.get(DType::f32, rows, routed.hidden());
    for (std::size_t s = 0; s < shared.size(); ++s) {
      const MatrixSpan y = s == 0 ? sum : work.shared.get(DType::f32, rows, routed.hidden());
      run_experts(shared[s], x, rows, std::span(&rows, 1), work, y);
      if (s > 0) add_rows(y, sum);
    }
    return sum;
  }

  /// `x` MatrixView or QuantizedView of a few tokens.
  template <class X>
  void run(const X& x, std::span<const std::int64_t> ids, std::span<const float> weights,
           std::int64_t top_k, const MatrixSpan& out, Workspace& work) const {
    const MatrixView shared_sum = run_shared(x, out.rows, work);
    const Dispatch d = dispatch(ids, top_k, routed.count());
    const auto rows = static_cast<std::int64_t>(d.token_of.size());
    const MatrixSpan y = work.down.get(DType::f32, rows, routed.hidden());
    if (rows > 0) {
      const auto gathered = gather(x, d.token_of, work);
      if constexpr (std::is_same_v<X, MatrixView>)
        run_experts(routed, MatrixView(gathered), rows, d.row_ends, work, y);
      else
        run_experts(routed, QuantizedView(gathered), rows, d.row_ends, work, y);
    }
    combine_rows(shared_sum, y, weights, d.row_of, out);
  }

  void require_call(const char* op, std::int64_t tokens, std::int64_t cols, const Routing& routing,
                    const MatrixSpan& out) const {
    require_tokens(op, tokens, options.max_tokens);
    require<ShapeError>(cols == hidden, "{}: x.cols = {}, must be K = {}", op, cols, hidden);
    require_routing(op, routing, tokens);
    require<ShapeError>(options.max_tokens <= 0 || routing.top_k <= options.max_top_k,
                        "{}: routing.top_k = {}, must be at most max_top_k = {}", op, routing.top_k,
                        options.max_top_k);
    require_matrix(op, "out", out);
    if (on_device)
      require_on(op, "out", out.device, options.device);
    else
      require_cpu(op, "out", out.device);
    require<ShapeError>(out.rows == tokens && out.cols == cols,
                        "{}: out has shape [{}, {}], must be [{}, {}]", op, out.rows, out.cols,
                        tokens, cols);
  }

  template <class X>
  void forward(const char* op, const X& x, std::int64_t tokens, std::int64_t cols,
               const Routing& routing, const MatrixSpan& out, Workspace& work) const {
    require_call(op, tokens, cols, routing, out);
    const std::int64_t top_k = routing.top_k;
    std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens * top_k));
    std::vector<float> weights(ids.size());
    stage_routing(routing, {ids.data(), top_k, weights.data(), top_k});
    for (std::size_t i = 0; i < ids.size(); ++i)
      require<ValueError>(ids[i] >= 0 && ids[i] < routed.count(),
                          "{}: routing.ids of token {}, choice {} = {}, must be in 0 … {}", op,
                          static_cast<std::int64_t>(i) / top_k,
                          static_cast<std::int64_t>(i) % top_k, ids[i], routed.count() - 1);
    const std::int64_t step = tokens_at_a_time(top_k);
    for (std::int64_t t = 0; t < tokens; t += std::min(step, tokens - t)) {
      const std::int64_t n = std::min(step, tokens - t);
      const auto pair = static_cast<std::size_t>(t * top_k);
      const auto pairs = static_cast<std::size_t>(n * top_k);
      run(rows_of(x, t, n), std::span(ids).subspan(pair, pairs),
          std::span(weights).subspan(pair, pairs), top_k, rows_of(out, t, n), work);
    }
  }

  /// Takes the memory for the largest input now.
  void reserve() const {
    LendingPool<Workspace>::Lease work(workspaces);
    const std::int64_t tokens = std::min(options.max_tokens, tokens_at_a_time(options.max_top_k));
    const std::int64_t rows = tokens * options.max_top_k, k = routed.hidden();
    std::int64_t width = rows * routed.intermediate();
    for (const Experts& s : shared) width = std::max(width, tokens * s.intermediate());
    work->gate_up.get(DType::f32, 1, 2 * width);
    work->down.get(DType::f32, rows, k);
    if (!shared.empty()) work->sum.get(DType::f32, tokens, k);
    if (shared.size() > 1) work->shared.get(DType::f32, tokens, k);
    if (w4a4()) {
      work->x.get(options.max_tokens, k, input.scope);
      work->gathered_x.get(rows, k, input.scope);
      work->activated.get(1, width, GlobalScope::vector);
      work->activated.get(std::max(rows, tokens), kBlock, GlobalScope::vector);
      work->row_scales.reserve(static_cast<std::size_t>(std::max(rows, tokens)));
    } else {
      work->gathered.get(DType::f32, rows, k);
      work->hidden.get(options.intermediate, 1, width);
    }
  }
};

Moe::Moe(std::span<const ExpertWeights> routed, std::span<const ExpertWeights> shared,
         const MoeOptions& options) {
  constexpr const char* kOp = "Moe";
  require_layer_device(kOp, options.device);
  require<ShapeError>(!routed.empty(), "{}: no routed experts, must be at least one", kOp);
  require<ValueError>(options.swiglu_limit > 0, "{}: swiglu_limit = {}, must be positive", kOp,
                      options.swiglu_limit);
  require<ValueError>(options.max_top_k >= 1, "{}: max_top_k = {}, must be at least 1", kOp,
                      options.max_top_k);
  auto impl = std::make_shared<Impl>();
  impl->options = options;
  const std::int64_t k = routed[0].gate.inputs();
  std::optional<GlobalScale> stored;
  for (const auto& list : {routed, shared})
    for (const ExpertWeights& e : list)
      stored = larger(larger(stored, e.gate.input_scale), e.up.input_scale);
  impl->input = {options.activation, stored, options.activation_quantizer, options.backend};
  impl->count = static_cast<std::int64_t>(routed.size());
  impl->shared_count = static_cast<std::int64_t>(shared.size());
  impl->hidden = k;
  impl->intermediate = routed[0].gate.outputs();
  if (options.device.type == DeviceType::cuda) {
    impl->on_device.emplace(kOp, routed, shared, options, impl->input);
    impl->bytes = impl->on_device->weight_bytes();
  } else {
    impl->routed = make_experts(kOp, routed, k, options);
    for (const ExpertWeights& e : shared)
      impl->shared.push_back(make_experts(kOp, {&e, 1}, k, options));
    impl->bytes = impl->routed.weight_bytes();
    for (const Experts& e : impl->shared) impl->bytes += e.weight_bytes();
    if (options.max_tokens > 0) impl->reserve();
  }
  impl_ = std::move(impl);
}

const Moe::Impl& Moe::impl() const {
  require<ValueError>(impl_ != nullptr, "Moe: the layer is empty");
  return *impl_;
}

std::int64_t Moe::experts() const { return impl().count; }
std::int64_t Moe::shared_experts() const { return impl().shared_count; }
std::int64_t Moe::hidden() const { return impl().hidden; }
std::int64_t Moe::intermediate() const { return impl().intermediate; }
Scheme Moe::scheme() const { return impl().options.scheme; }
Device Moe::device() const { return impl().options.device; }
std::int64_t Moe::weight_bytes() const { return impl().bytes; }

QuantizedActivation Moe::quantize(MatrixView x, Stream stream) const {
  return impl().input("Moe::quantize", scheme(), x, stream);
}

void Moe::forward_into(MatrixView x, const Routing& routing, MatrixSpan out, Stream stream) const {
  const Impl& m = impl();
  require_matrix("Moe", "x", x);
  if (m.on_device) {
    require_on("Moe", "x", x.device, device());
    m.require_call("Moe", x.rows, x.cols, routing, out);
    return m.on_device->forward(x, routing, out, stream);
  }
  require_cpu("Moe", "x", x.device);
  LendingPool<Workspace>::Lease work(m.workspaces);
  if (!m.w4a4()) return m.forward("Moe", x, x.rows, x.cols, routing, out, *work);
  require_tokens("Moe", x.rows, m.options.max_tokens);
  require<ShapeError>(x.cols == hidden(), "Moe: x.cols = {}, must be K = {}", x.cols, hidden());
  const QuantizedSpan quantized = work->x.get(x.rows, x.cols, m.input.scope);
  quantize_into(x, quantized, m.input.options(stream));
  m.forward("Moe", QuantizedView(quantized), x.rows, x.cols, routing, out, *work);
}

void Moe::forward_into(const QuantizedActivation& x, const Routing& routing, MatrixSpan out,
                       Stream stream) const {
  const Impl& m = impl();
  require_w4a4("Moe", m.options.scheme);
  const QuantizedView view = x.view();
  require_quantized("Moe", "x", view);
  if (m.on_device)
    require_on("Moe", "x", view.device, device());
  else
    require_cpu("Moe", "x", view.device);
  require<ShapeError>(view.shape.axis == BlockAxis::rows && view.shape.block == kBlock &&
                          view.shape.layout == ScaleLayout::linear,
                      "Moe: x must have linear scales and blocks of 16 along its rows");
  if (m.on_device) {
    m.require_call("Moe", view.shape.rows, view.shape.cols, routing, out);
    return m.on_device->forward(view, routing, out, stream);
  }
  LendingPool<Workspace>::Lease work(m.workspaces);
  m.forward("Moe", view, view.shape.rows, view.shape.cols, routing, out, *work);
}

}  // namespace nvfp4
