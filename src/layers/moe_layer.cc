#include "layers/moe_layer.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/require.h"
#include "core/rows_of.h"
#include "layers/weights.h"
#include "ops/options.h"
#include "ops/run_gemm.h"

namespace nvfp4 {
namespace {

static_assert(sizeof(GlobalScale) == 2 * sizeof(float) && sizeof(std::int32_t) == sizeof(float));

constexpr const char* kOp = "Moe";

std::optional<GlobalScale> stored_scale(std::span<const ExpertWeights> list,
                                        std::optional<GlobalScale> stored) {
  for (const ExpertWeights& e : list)
    stored = larger(larger(stored, e.gate.input_scale), e.up.input_scale);
  return stored;
}

/// Returns tokens [first, first + count) of a routing on the CPU.
Routing part_of(Routing routing, std::int64_t first, std::int64_t count) {
  const std::int64_t id_bytes = std::int64_t{1} << static_cast<int>(routing.id_type) / 2;
  if (routing.ids != nullptr)
    routing.ids = static_cast<const std::byte*>(routing.ids) + first * routing.id_stride * id_bytes;
  if (routing.weights != nullptr) routing.weights += first * routing.weight_stride;
  routing.rows = count;
  return routing;
}

}  // namespace

MoeLayer::MoeLayer(const char* op, std::span<const ExpertWeights> routed,
                   std::span<const ExpertWeights> shared, const MoeOptions& options)
    : options_(options),
      input_(options.activation, stored_scale(shared, stored_scale(routed, {})),
             options.activation_quantizer, options.backend) {
  require_layer_device(op, options.device, options.autotune);
  require<ShapeError>(!routed.empty(), "{}: no routed experts, must be at least one", op);
  require<ValueError>(options.swiglu_limit > 0, "{}: swiglu_limit = {}, must be positive", op,
                      options.swiglu_limit);
  require<ValueError>(options.max_top_k >= 1, "{}: max_top_k = {}, must be at least 1", op,
                      options.max_top_k);
  require<UnsupportedError>(on_cpu() || std::ssize(routed) <= kMostExperts,
                            "{}: {} routed experts, at most {} can be run on {}", op, routed.size(),
                            kMostExperts, device_name(device()));
  require<ValueError>(on_cpu() || w4a4() || options.intermediate != DType::f32,
                      "{}: intermediate = f32, must be bf16 or f16 on {}", op,
                      device_name(device()));
  const std::int64_t k = routed[0].gate.inputs();
  routed_ = make_experts(op, routed, k);
  for (const ExpertWeights& e : shared) shared_.push_back(make_experts(op, {&e, 1}, k));
  work_.set_device(device());
  if (options.max_tokens > 0) reserve();
}

MoeLayer::MoeLayer(const char* op, PackedWeights gate_up, PackedWeights down,
                   std::optional<GlobalScale> input_scale, std::vector<GlobalScale> down_scales,
                   const MoeOptions& options)
    : options_(options),
      input_(options.activation, input_scale, options.activation_quantizer, options.backend) {
  require_layer_device(op, device(), options.autotune);
  require<ShapeError>(down.groups() == gate_up.groups() && down.rows() == gate_up.cols() &&
                          2 * down.cols() == gate_up.rows(),
                      "{}: down has shape [{}, {}, {}], must be [E, K, I] of gate_up [E, 2·I, K] = "
                      "[{}, {}, {}]",
                      op, down.groups(), down.rows(), down.cols(), gate_up.groups(), gate_up.rows(),
                      gate_up.cols());
  for (const PackedWeights* w : {&gate_up, &down}) require_on(op, "weights", w->device(), device());
  require<UnsupportedError>(on_cpu() || down.groups() <= kMostExperts,
                            "{}: {} experts, at most {} can be run on {}", op, down.groups(),
                            kMostExperts, device_name(device()));
  set_down_scales(routed_, std::move(down_scales), static_cast<std::size_t>(down.groups()));
  routed_.fused = gate_up.shape().gate_up.has_value();
  require<UnsupportedError>(
      !routed_.fused || (backend().fuses_swiglu && (!w4a4() || quantizes_fused(routed_))),
      "{}: gate_up is packed for SwiGLU, which this GEMM cannot compute", op);
  routed_.gate_up = std::move(gate_up);
  routed_.down = std::move(down);
  work_.set_device(device());
}

MoeLayer::Experts MoeLayer::make_experts(const char* op, std::span<const ExpertWeights> list,
                                         std::int64_t k) const {
  std::vector<std::vector<WeightView>> gate_up, down;
  std::vector<GlobalScale> scales;
  Experts experts;
  for (const ExpertWeights& e : list) {
    require_expert(op, e, k, list[0].gate.outputs());
    gate_up.push_back({e.gate, e.up});
    down.push_back({e.down});
    if (e.down.input_scale) scales.push_back(*e.down.input_scale);
  }
  set_down_scales(experts, std::move(scales), list.size());
  experts.fused = backend().fuses_swiglu && list[0].gate.outputs() % kBlock == 0 &&
                  (!w4a4() || quantizes_fused(experts));
  const auto pack = [&](const std::vector<std::vector<WeightView>>& groups,
                        std::optional<GateUp> order) {
    return pack_groups(op, groups, options_.weight_quantizer, options_.backend, device(), order);
  };
  experts.gate_up = pack(gate_up, experts.fused ? std::optional(GateUp{}) : std::nullopt);
  experts.down = pack(down, std::nullopt);
  return experts;
}

void MoeLayer::set_down_scales(Experts& experts, std::vector<GlobalScale> scales,
                               std::size_t count) const {
  if (options_.down_activation.kind() != ActivationScale::Kind::stored || scales.size() != count)
    return;
  experts.down_scales = std::move(scales);
  experts.down_scales_there = to_device(
      MatrixView(experts.down_scales.data(), DType::f32, static_cast<std::int64_t>(count), 2),
      device());
}

/// Reports whether the GEMM of gate and up may quantize its result. A measured global scale needs
/// all outputs of SwiGLU before the first one is quantized.
bool MoeLayer::quantizes_fused(const Experts& experts) const {
  const InputQuantizer quantizer = down_quantizer(experts);
  return quantizer.quantizer == Quantizer::max &&
         (quantizer.global || !experts.down_scales.empty());
}

std::int64_t MoeLayer::weight_bytes() const {
  std::int64_t bytes = routed_.gate_up.bytes() + routed_.down.bytes();
  for (const Experts& s : shared_) bytes += s.gate_up.bytes() + s.down.bytes();
  return bytes;
}

GemmDescription MoeLayer::description(const PackedWeights& w, std::int64_t rows,
                                      const Rule& rule) const {
  GemmDescription d{.m = rows,
                    .n = w.rows(),
                    .k = w.cols(),
                    .groups = w.groups(),
                    .scheme = options_.scheme,
                    .out = DType::f32,
                    .batch_invariant = options_.batch_invariant,
                    .autotune = options_.autotune,
                    .backend = options_.backend};
  if (rule.order != nullptr) d.form = GemmForm::grouped;
  if (rule.choices != nullptr) {
    d.form = GemmForm::routed;
    d.top_k = rule.choices->top_k;
  }
  return d;
}

GemmDescription MoeLayer::gate_up_description(const Experts& experts, std::int64_t rows,
                                              const Rule& rule) const {
  GemmDescription d = description(experts.gate_up, rows, rule);
  if (!experts.fused) return d;
  d.epilogue = w4a4() ? Epilogue::swiglu_quantize : Epilogue::swiglu;
  d.swiglu_limit = options_.swiglu_limit;
  if (!w4a4()) d.out = options_.intermediate;
  return d;
}

void MoeLayer::product(const PackedWeights& w, GemmDescription d, GemmArguments a, const Rule& rule,
                       const Call& call) const {
  std::int64_t x_rows = 0;
  if (const MatrixView* x = std::get_if<MatrixView>(&a.x)) {
    d.x = x->dtype;
    x_rows = x->rows;
  } else {
    x_rows = std::get<QuantizedView>(a.x).shape.rows;
  }
  d.shared_x = d.form == GemmForm::routed && x_rows != d.m;
  a.weights = w;
  if (rule.order != nullptr)
    a.row_ends = {rule.order->row_ends, static_cast<std::size_t>(rule.order->experts)};
  if (rule.choices != nullptr) a.routing = *rule.choices;
  const GemmPlan plan = plan_gemm(d, device());
  run_gemm(kOp, plan, a, call.work.workspace.bytes(plan.workspace_bytes(), device()), call.stream,
           rule.settled);
}

DispatchJob MoeLayer::order(const Routing& routing, const Call& call) const {
  const std::int64_t rows = routing.rows * routing.top_k;
  Work& work = call.work;
  const DispatchJob job{
      .routing = routing,
      .experts = routed_.count(),
      .row_ends = words<std::int32_t>(work.row_ends, routed_.count(), device()),
      .row_of = words<std::int32_t>(work.row_of, rows, device()),
      .token_of = words<std::int32_t>(work.token_of, rows, device()),
      .expert_of = words<std::int32_t>(work.expert_of, rows, device()),
      .counts = words<std::int32_t>(work.counts, dispatch_counts(rows, routed_.count()), device()),
      .device = device(),
      .stream = call.stream};
  backend().dispatch(job);
  return job;
}

MoeLayer::X MoeLayer::gather(const X& given, const DispatchJob& routed, const Call& call) const {
  const std::int64_t rows = routed.routing.rows * routed.routing.top_k;
  const auto part = [&](const void* from, std::int64_t stride, std::int64_t row_bytes, void* into) {
    backend().gather_rows({.from = from,
                           .from_stride = stride,
                           .row_bytes = row_bytes,
                           .index = routed.token_of,
                           .rows = rows,
                           .to = into,
                           .row_of = routed.row_of,
                           .top_k = routed.routing.top_k,
                           .device = device(),
                           .stream = call.stream});
  };
  if (const MatrixView* x = std::get_if<MatrixView>(&given)) {
    const std::int64_t size = dtype_size(x->dtype);
    const MatrixSpan to = call.work.gathered.get(x->dtype, rows, x->cols, device());
    part(x->data, x->stride * size, x->cols * size, to.data);
    return MatrixView(to);
  }
  const QuantizedView& x = std::get<QuantizedView>(given);
  const QuantizedSpan to = call.work.gathered_x.get(rows, x.shape.cols, x.shape.scope, device());
  part(x.codes, x.shape.cols / 2, x.shape.cols / 2, to.codes);
  part(x.scales, x.shape.blocks(), x.shape.blocks(), to.scales);
  QuantizedView gathered = to;
  if (x.shape.scope == GlobalScope::vector)
    part(x.global_scale, sizeof(float), sizeof(float), to.global_scale);
  else
    gathered.global_scale = x.global_scale;
  return gathered;
}

/// Returns the quantizer of the input of down, independent of the rows.
InputQuantizer MoeLayer::down_quantizer(const Experts& experts) const {
  std::optional<GlobalScale> stored;
  if (experts.down_scales.size() == 1) stored = experts.down_scales[0];
  return {options_.down_activation, stored, options_.activation_quantizer, options_.backend};
}

GlobalScales MoeLayer::row_scales(const Experts& experts, std::int64_t rows, const Rule& rule,
                                  const Call& call) const {
  float* const scales = words<float>(call.work.row_scales, 2 * rows, device());
  GatherJob job{.from = experts.down_scales_there.data<float>(),
                .from_stride = sizeof(GlobalScale),
                .row_bytes = sizeof(GlobalScale),
                .experts = experts.count(),
                .rows = rows,
                .to = scales,
                .device = device(),
                .stream = call.stream};
  if (rule.order != nullptr)
    job.index = rule.order->expert_of;
  else
    job.routing = *rule.choices;
  backend().gather_rows(job);
  return {reinterpret_cast<const GlobalScale*>(scales), static_cast<std::size_t>(rows), device()};
}

MatrixSpan MoeLayer::gate_up_sums(const Experts& experts, const X& x, std::int64_t rows,
                                  const Rule& rule, const Call& call) const {
  const MatrixSpan sums =
      call.work.gate_up.get(DType::f32, rows, 2 * experts.intermediate(), device());
  product(experts.gate_up, gate_up_description(experts, rows, rule), {.x = x, .out = sums}, rule,
          call);
  return sums;
}

MatrixView MoeLayer::hidden(const Experts& experts, const X& x, std::int64_t rows, const Rule& rule,
                            const Call& call) const {
  const MatrixSpan h =
      call.work.hidden.get(options_.intermediate, rows, experts.intermediate(), device());
  if (experts.fused) {
    product(experts.gate_up, gate_up_description(experts, rows, rule), {.x = x, .out = h}, rule,
            call);
  } else {
    swiglu_into(gate_up_sums(experts, x, rows, rule, call), h, {.limit = options_.swiglu_limit},
                {.backend = options_.backend, .stream = call.stream});
  }
  return h;
}

QuantizedView MoeLayer::quantized_hidden(const Experts& experts, const X& x, std::int64_t rows,
                                         const Rule& rule, const Call& call) const {
  InputQuantizer quantizer = down_quantizer(experts);
  const bool each_row = experts.down_scales.size() > 1;
  if (each_row) quantizer.scope = GlobalScope::vector;
  QuantizeOptions o = quantizer.options(call.stream);
  if (each_row) o.global = row_scales(experts, rows, rule, call);
  const QuantizedSpan h =
      call.work.activated.get(rows, experts.intermediate(), quantizer.scope, device());
  if (experts.fused) {
    product(experts.gate_up, gate_up_description(experts, rows, rule),
            {.x = x, .out = h, .out_global = o.global}, rule, call);
    return h;
  }
  const MatrixSpan gate_up = gate_up_sums(experts, x, rows, rule, call);
  // Rows of no expert may hold values of an earlier call. They must not affect the measured scale.
  if (rule.order != nullptr && o.global.empty() && quantizer.scope == GlobalScope::tensor)
    backend().clear_rows_from(rule.order->row_ends + rule.order->experts - 1, gate_up, call.stream);
  swiglu_quantize_into(gate_up, h, {.limit = options_.swiglu_limit}, o);
  return h;
}

/// Computes down(SwiGLU(gate_up(x))) of rows that belong to experts, in the order of the rule.
void MoeLayer::run_experts(const Experts& experts, const X& x, std::int64_t rows, const Rule& rule,
                           const MatrixSpan& out, const Call& call) const {
  const X h = w4a4() ? X(quantized_hidden(experts, x, rows, rule, call))
                     : X(hidden(experts, x, rows, rule, call));
  Rule of_down = rule;
  of_down.settled = true;
  GemmDescription d = description(experts.down, rows, rule);
  d.out = out.dtype;
  product(experts.down, d, {.x = h, .out = out}, of_down, call);
}

/// Returns the FP32 sum of the shared experts for all tokens, or an empty view.
MatrixView MoeLayer::run_shared(const X& x, std::int64_t tokens, const Call& call) const {
  if (shared_.empty()) return {};
  const std::int64_t k = routed_.hidden();
  const MatrixSpan sum = call.work.sum.get(DType::f32, tokens, k, device());
  for (std::size_t s = 0; s < shared_.size(); ++s) {
    const MatrixSpan y = s == 0 ? sum : call.work.shared.get(DType::f32, tokens, k, device());
    run_experts(shared_[s], x, tokens, {}, y, call);
    if (s > 0) backend().add_rows(y, sum, call.stream);
  }
  return sum;
}

/// Reports whether so few tokens need no order. The rows of one token normally read different
/// weights.
bool MoeLayer::takes_choices(const Routing& routing) const {
  return !on_cpu() && routing.rows == 1 && !options_.batch_invariant && routed_.fused &&
         std::max(routed_.hidden(), routed_.intermediate()) <= kMostRoutedDepth;
}

void MoeLayer::run(const X& x, const Routing& routing, const MatrixSpan& out,
                   const Call& call) const {
  if (out.rows == 0) return;
  const std::int64_t rows = routing.rows * routing.top_k;
  CombineJob combine{.first = run_shared(x, out.rows, call),
                     .routing = routing,
                     .experts = routed_.count(),
                     .out = out,
                     .stream = call.stream};
  if (rows > 0) {
    const MatrixSpan y = call.work.down.get(down_type(out.dtype), rows, routed_.hidden(), device());
    combine.rows = y;
    if (takes_choices(routing)) {
      // An earlier kernel of this layer, if any, does not write the routing.
      const bool settled = !shared_.empty() || w4a4();
      run_experts(routed_, x, rows, {.choices = &routing, .settled = settled}, y, call);
    } else {
      // Between the order of the rows and a GEMM at least the gathering of x is enqueued.
      const DispatchJob routed = order(routing, call);
      run_experts(routed_, gather(x, routed, call), rows, {.order = &routed}, y, call);
      combine.row_of = routed.row_of;
    }
  }
  backend().combine_rows(combine);
}

void MoeLayer::require_call(std::int64_t tokens, std::int64_t cols, const Routing& routing,
                            const MatrixSpan& out) const {
  require_tokens(kOp, tokens, options_.max_tokens);
  require<ShapeError>(cols == routed_.hidden(), "{}: x.cols = {}, must be K = {}", kOp, cols,
                      routed_.hidden());
  require_routing(kOp, routing, tokens);
  require<ShapeError>(options_.max_tokens <= 0 || routing.top_k <= options_.max_top_k,
                      "{}: routing.top_k = {}, must be at most max_top_k = {}", kOp, routing.top_k,
                      options_.max_top_k);
  require_matrix(kOp, "out", out);
  require_on(kOp, "out", out.device, device());
  require<ShapeError>(out.rows == tokens && out.cols == cols,
                      "{}: out has shape [{}, {}], must be [{}, {}]", kOp, out.rows, out.cols,
                      tokens, cols);
  const std::int64_t most = (std::int64_t{1} << 31) - 1;
  require<UnsupportedError>(routing.top_k == 0 || tokens <= most / routing.top_k,
                            "{}: {} tokens with {} experts each, at most 2^31 - 1 rows can be run",
                            kOp, tokens, routing.top_k);
  if (on_cpu()) require_experts(kOp, routing, routed_.count());
}

template <class View>
void MoeLayer::run_in_parts(const View& x, const Routing& routing, const MatrixSpan& out,
                            const Call& call) const {
  const std::int64_t step = tokens_at_a_time(routing.top_k);
  if (out.rows <= step) return run(x, routing, out, call);
  for (std::int64_t t = 0; t < out.rows; t += std::min(step, out.rows - t)) {
    const std::int64_t n = std::min(step, out.rows - t);
    run(rows_of(x, t, n), part_of(routing, t, n), rows_of(out, t, n), call);
  }
}

void MoeLayer::forward(const MatrixView& x, const Routing& routing, const MatrixSpan& out,
                       Stream stream) const {
  Scratch<Work>::Lease work(work_);
  forward_on(*work, x, routing, out, stream);
}

void MoeLayer::forward(const MatrixView& x, const Routing& routing, const MatrixSpan& out,
                       Stream stream, const Memory& memory) const {
  Work work;
  Arena arena{memory.rows.data()};
  place(work, arena, x.rows, routing.top_k, out.dtype);
  require<ShapeError>(arena.taken <= std::ssize(memory.rows),
                      "{}: memory has {} bytes, must have memory_bytes() = {}", kOp,
                      memory.rows.size(), arena.taken);
  work.workspace.place(memory.workspace.data(), std::ssize(memory.workspace));
  forward_on(work, x, routing, out, stream);
}

void MoeLayer::forward_on(Work& work, const MatrixView& x, const Routing& routing,
                          const MatrixSpan& out, Stream stream) const {
  require_matrix(kOp, "x", x);
  require_on(kOp, "x", x.device, device());
  require_call(x.rows, x.cols, routing, out);
  require<ValueError>(on_cpu() || w4a4() || x.dtype != DType::f32,
                      "{}: x.dtype = f32, must be bf16 or f16 on {}", kOp, device_name(device()));
  const Call call{work, stream};
  if (!w4a4()) {
    MatrixView rows = x;
    if (x.rows == 1) rows.stride = x.cols;  // one row has no meaningful stride
    return run_in_parts(rows, routing, out, call);
  }
  const QuantizedSpan quantized = work.x.get(x.rows, x.cols, input_.scope, device());
  quantize_into(x, quantized, input_.options(stream));
  run_in_parts(QuantizedView(quantized), routing, out, call);
}

void MoeLayer::forward(const QuantizedView& x, const Routing& routing, const MatrixSpan& out,
                       Stream stream) const {
  require_w4a4(kOp, options_.scheme);
  require_quantized(kOp, "x", x);
  require_on(kOp, "x", x.device, device());
  require<ShapeError>(x.shape.axis == BlockAxis::rows && x.shape.block == kBlock &&
                          x.shape.layout == ScaleLayout::linear,
                      "{}: x must have linear scales and blocks of 16 along its rows", kOp);
  require_call(x.shape.rows, x.shape.cols, routing, out);
  Scratch<Work>::Lease work(work_);
  run_in_parts(x, routing, out, {*work, stream});
}

}  // namespace nvfp4
