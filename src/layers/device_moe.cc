#include "layers/device_moe.h"

#include <algorithm>
#include <type_traits>

#include "core/require.h"
#include "layers/weights.h"
#include "nvfp4/tensor_core_swiglu.h"
#include "ops/options.h"

namespace nvfp4 {
namespace {

static_assert(sizeof(GlobalScale) == 2 * sizeof(float) && sizeof(std::int32_t) == sizeof(float));

/// `count` values of 4 bytes.
template <class T>
T* words(Rows& memory, std::int64_t count, Device device) {
  return static_cast<T*>(memory.get(DType::f32, 1, count, device).data);
}

std::span<const std::int32_t> row_ends(const DispatchJob& routed) {
  return {routed.row_ends, static_cast<std::size_t>(routed.experts)};
}

}  // namespace

DeviceMoe::Experts DeviceMoe::make_experts(const char* op, std::span<const ExpertWeights> list,
                                           std::int64_t k) const {
  std::vector<std::vector<WeightView>> gate_up, down;
  Experts experts;
  for (const ExpertWeights& e : list) {
    require_expert(op, e, k, list[0].gate.outputs());
    gate_up.push_back({e.gate, e.up});
    down.push_back({e.down});
    if (e.down.input_scale) experts.down_scales.push_back(*e.down.input_scale);
  }
  if (options_.down_activation.kind() != ActivationScale::Kind::stored ||
      experts.down_scales.size() != list.size())
    experts.down_scales.clear();
  if (!experts.down_scales.empty())
    experts.down_scales_there = to_device(MatrixView(experts.down_scales.data(), DType::f32,
                                                     static_cast<std::int64_t>(list.size()), 2),
                                          device_);
  // A global scale that is measured needs all of SwiGLU's outputs before the first is quantized.
  const bool fuses =
      !w4a4() || (activation_quantizer(experts).quantizer == Quantizer::max &&
                  (activation_quantizer(experts).global || !experts.down_scales.empty()));
  const auto pack = [&](const std::vector<std::vector<WeightView>>& groups,
                        std::optional<GateUp> order) {
    return fragment_parts(op, groups, options_.weight_quantizer, options_.backend, device_, order);
  };
  const bool whole_blocks = list[0].gate.outputs() % kBlock == 0;
  experts.gate_up = pack(gate_up, fuses && whole_blocks ? std::optional(GateUp{}) : std::nullopt);
  experts.down = pack(down, std::nullopt);
  return experts;
}

DeviceMoe::DeviceMoe(const char* op, std::span<const ExpertWeights> routed,
                     std::span<const ExpertWeights> shared, const MoeOptions& options,
                     const InputQuantizer& input)
    : options_(options), input_(input), device_(options.device) {
  require<UnsupportedError>(static_cast<std::int64_t>(routed.size()) <= kMostExperts,
                            "{}: {} routed experts, at most {} can be run on {}", op, routed.size(),
                            kMostExperts, device_name(device_));
  require<ValueError>(w4a4() || options.intermediate != DType::f32,
                      "{}: intermediate = f32, must be bf16 or f16 on {}", op,
                      device_name(device_));
  const std::int64_t k = routed[0].gate.inputs();
  routed_ = make_experts(op, routed, k);
  for (const ExpertWeights& e : shared) shared_.push_back(make_experts(op, {&e, 1}, k));
  if (options.max_tokens > 0) reserve();
}

std::int64_t DeviceMoe::weight_bytes() const {
  std::int64_t bytes = routed_.gate_up.bytes() + routed_.down.bytes();
  for (const Experts& s : shared_) bytes += s.gate_up.bytes() + s.down.bytes();
  return bytes;
}

void DeviceMoe::reserve() const {
  const std::int64_t tokens = options_.max_tokens, rows = tokens * options_.max_top_k;
  const std::int64_t k = routed_.hidden();
  std::int64_t width = rows * routed_.intermediate();
  for (const Experts& s : shared_) width = std::max(width, tokens * s.intermediate());
  const auto fuses = [](const Experts& e) { return e.gate_up.gate_up().has_value(); };
  if (!fuses(routed_) || !std::ranges::all_of(shared_, fuses))
    work_.gate_up.get(DType::f32, 1, 2 * width, device_);
  work_.down.get(DType::f32, rows, k, device_);
  if (!shared_.empty()) work_.sum.get(DType::f32, tokens, k, device_);
  if (shared_.size() > 1) work_.shared.get(DType::f32, tokens, k, device_);
  for (Rows* of_rows : {&work_.row_of, &work_.token_of, &work_.expert_of})
    words<std::int32_t>(*of_rows, rows, device_);
  words<std::int32_t>(work_.row_ends, routed_.count(), device_);
  words<std::int32_t>(work_.counts, dispatch_counts(rows, routed_.count()), device_);
  if (!w4a4()) {
    work_.gathered.get(DType::bf16, rows, k, device_);
    work_.hidden.get(options_.intermediate, 1, width, device_);
    return;
  }
  work_.x.get(tokens, k, input_.scope, device_);
  work_.gathered_x.get(rows, k, input_.scope, device_);
  work_.activated.get(1, width, GlobalScope::vector, device_);
  work_.activated.get(std::max(rows, tokens), kBlock, GlobalScope::vector, device_);
  words<float>(work_.row_scales, 2 * rows, device_);
  const QuantizedShape widest{.rows = 1, .cols = std::max(std::max(rows, tokens) * k, width)};
  decoding_memory(work_.decoded, widest, device_);
}

DispatchJob DeviceMoe::order(const Routing& routing, Stream stream) const {
  const std::int64_t rows = routing.rows * routing.top_k;
  const DispatchJob job{
      .routing = routing,
      .experts = routed_.count(),
      .row_ends = words<std::int32_t>(work_.row_ends, routed_.count(), device_),
      .row_of = words<std::int32_t>(work_.row_of, rows, device_),
      .token_of = words<std::int32_t>(work_.token_of, rows, device_),
      .expert_of = words<std::int32_t>(work_.expert_of, rows, device_),
      .counts = words<std::int32_t>(work_.counts, dispatch_counts(rows, routed_.count()), device_),
      .device = device_,
      .stream = stream};
  device_backend(device_).dispatch(job);
  return job;
}

MatrixView DeviceMoe::gather(const MatrixView& x, const DispatchJob& routed) const {
  const std::int64_t rows = routed.routing.rows * routed.routing.top_k, size = dtype_size(x.dtype);
  const MatrixSpan to = work_.gathered.get(x.dtype, rows, x.cols, device_);
  device_backend(device_).gather_rows({.from = x.data,
                                       .from_stride = x.stride * size,
                                       .row_bytes = x.cols * size,
                                       .index = routed.token_of,
                                       .rows = rows,
                                       .to = to.data,
                                       .row_of = routed.row_of,
                                       .top_k = routed.routing.top_k,
                                       .device = device_,
                                       .stream = routed.stream});
  return to;
}

QuantizedView DeviceMoe::gather(const QuantizedView& x, const DispatchJob& routed) const {
  const std::int64_t rows = routed.routing.rows * routed.routing.top_k;
  const QuantizedSpan to = work_.gathered_x.get(rows, x.shape.cols, x.shape.scope, device_);
  const auto part = [&](const void* from, std::int64_t row_bytes, void* into) {
    device_backend(device_).gather_rows({.from = from,
                                         .from_stride = row_bytes,
                                         .row_bytes = row_bytes,
                                         .index = routed.token_of,
                                         .rows = rows,
                                         .to = into,
                                         .row_of = routed.row_of,
                                         .top_k = routed.routing.top_k,
                                         .device = device_,
                                         .stream = routed.stream});
  };
  part(x.codes, x.shape.cols / 2, to.codes);
  part(x.scales, x.shape.blocks(), to.scales);
  QuantizedView gathered = to;
  if (x.shape.scope == GlobalScope::vector)
    part(x.global_scale, sizeof(float), to.global_scale);
  else
    gathered.global_scale = x.global_scale;
  return gathered;
}

template <class X>
TensorCoreGemmOptions DeviceMoe::product_options(const X& x, const Rule& rule,
                                                 Stream stream) const {
  TensorCoreGemmOptions options{
      .batch_invariant = options_.batch_invariant, .ends_settled = rule.settled, .stream = stream};
  if constexpr (std::is_same_v<X, QuantizedView>)
    options.workspace = decoding_memory(work_.decoded, x.shape, device_);
  return options;
}

template <class X>
void DeviceMoe::product(const X& x, const FragmentWeights& w, const Rule& rule,
                        const MatrixSpan& out, Stream stream) const {
  const TensorCoreGemmOptions options = product_options(x, rule, stream);
  if (rule.choices != nullptr) return routed_gemm_into(x, w, *rule.choices, out, options);
  if (rule.order != nullptr)
    return grouped_gemm_into(x, w, {}, row_ends(*rule.order), out, options);
  gemm_into(x, w, out, options);
}

template <class X>
void DeviceMoe::hidden(const Experts& experts, const X& x, const Rule& rule, const MatrixSpan& out,
                       Stream stream) const {
  if (experts.gate_up.gate_up()) {
    const TensorCoreSwigluOptions options{.limit = options_.swiglu_limit,
                                          .gemm = product_options(x, rule, stream)};
    if (rule.choices != nullptr)
      return routed_swiglu_gemm_into(x, experts.gate_up, *rule.choices, out, options);
    if (rule.order != nullptr)
      return grouped_swiglu_gemm_into(x, experts.gate_up, {}, row_ends(*rule.order), out, options);
    return swiglu_gemm_into(x, experts.gate_up, out, options);
  }
  const MatrixSpan gate_up =
      work_.gate_up.get(DType::f32, out.rows, 2 * experts.intermediate(), device_);
  product(x, experts.gate_up, rule, gate_up, stream);
  swiglu_into(gate_up, out, {.limit = options_.swiglu_limit}, {.stream = stream});
}

InputQuantizer DeviceMoe::activation_quantizer(const Experts& experts) const {
  std::optional<GlobalScale> stored;
  if (experts.down_scales.size() == 1) stored = experts.down_scales[0];
  return {options_.down_activation, stored, options_.activation_quantizer, options_.backend};
}

GlobalScales DeviceMoe::row_scales(const Experts& experts, std::int64_t rows, const Rule& rule,
                                   Stream stream) const {
  float* const scales = words<float>(work_.row_scales, 2 * rows, device_);
  GatherJob job{.from = experts.down_scales_there.data<float>(),
                .from_stride = sizeof(GlobalScale),
                .row_bytes = sizeof(GlobalScale),
                .experts = experts.count(),
                .rows = rows,
                .to = scales,
                .device = device_,
                .stream = stream};
  if (rule.order != nullptr)
    job.index = rule.order->expert_of;
  else
    job.routing = *rule.choices;
  device_backend(device_).gather_rows(job);
  return {reinterpret_cast<const GlobalScale*>(scales), static_cast<std::size_t>(rows), device_};
}

template <class X>
QuantizedView DeviceMoe::quantized_hidden(const Experts& experts, const X& x, std::int64_t rows,
                                          const Rule& rule, Stream stream) const {
  InputQuantizer quantizer = activation_quantizer(experts);
  const bool each_row = experts.down_scales.size() > 1;
  if (each_row) quantizer.scope = GlobalScope::vector;
  QuantizeOptions o = quantizer.options(stream);
  if (each_row) o.global = row_scales(experts, rows, rule, stream);
  const QuantizedSpan h =
      work_.activated.get(rows, experts.intermediate(), quantizer.scope, device_);
  if (experts.gate_up.gate_up()) {
    const TensorCoreSwigluOptions options{.limit = options_.swiglu_limit,
                                          .gemm = product_options(x, rule, stream)};
    if (rule.choices != nullptr)
      routed_swiglu_gemm_quantize_into(x, experts.gate_up, *rule.choices, h, o, options);
    else if (rule.order != nullptr)
      grouped_swiglu_gemm_quantize_into(x, experts.gate_up, {}, row_ends(*rule.order), h, o,
                                        options);
    else
      swiglu_gemm_quantize_into(x, experts.gate_up, h, o, options);
    return h;
  }
  const MatrixSpan gate_up =
      work_.gate_up.get(DType::f32, rows, 2 * experts.intermediate(), device_);
  product(x, experts.gate_up, rule, gate_up, stream);
  // What an earlier call left in the rows of no expert must not count.
  if (rule.order != nullptr && o.global.empty() && quantizer.scope == GlobalScope::tensor)
    device_backend(device_).clear_rows_from(rule.order->row_ends + rule.order->experts - 1, gate_up,
                                            stream);
  swiglu_quantize_into(gate_up, h, {.limit = options_.swiglu_limit}, o);
  return h;
}

template <class X>
void DeviceMoe::run_experts(const Experts& experts, const X& x, std::int64_t rows, const Rule& rule,
                            const MatrixSpan& out, Stream stream) const {
  Rule of_down = rule;
  of_down.settled = true;
  if (w4a4())
    return product(quantized_hidden(experts, x, rows, rule, stream), experts.down, of_down, out,
                   stream);
  const MatrixSpan h =
      work_.hidden.get(options_.intermediate, rows, experts.intermediate(), device_);
  hidden(experts, x, rule, h, stream);
  product(MatrixView(h), experts.down, of_down, out, stream);
}

template <class X>
MatrixView DeviceMoe::run_shared(const X& x, std::int64_t tokens, Stream stream) const {
  if (shared_.empty()) return {};
  const std::int64_t k = routed_.hidden();
  const MatrixSpan sum = work_.sum.get(DType::f32, tokens, k, device_);
  for (std::size_t s = 0; s < shared_.size(); ++s) {
    const MatrixSpan y = s == 0 ? sum : work_.shared.get(DType::f32, tokens, k, device_);
    run_experts(shared_[s], x, tokens, {}, y, stream);
    if (s > 0) device_backend(device_).add_rows(y, sum, stream);
  }
  return sum;
}

bool DeviceMoe::takes_choices(const Routing& routing) const {
  // Of one token no two rows read the same weights. A measured global scale needs an order.
  return routing.rows == 1 && !options_.batch_invariant && routed_.gate_up.gate_up() &&
         std::max(routed_.hidden(), routed_.intermediate()) <= kMostRoutedDepth;
}

template <class X>
void DeviceMoe::run(const X& x, const Routing& routing, const MatrixSpan& out,
                    Stream stream) const {
  if (out.rows == 0) return;
  const std::int64_t rows = routing.rows * routing.top_k;
  require<UnsupportedError>(rows < std::int64_t{1} << 31,
                            "Moe: {} tokens with {} experts each, at most 2^31 - 1 rows can be run",
                            routing.rows, routing.top_k);
  CombineJob combine{.first = run_shared(x, out.rows, stream),
                     .routing = routing,
                     .experts = routed_.count(),
                     .out = out,
                     .stream = stream};
  if (rows > 0) {
    const DType type = out.dtype == DType::bf16 ? DType::bf16 : DType::f32;
    const MatrixSpan y = work_.down.get(type, rows, routed_.hidden(), device_);
    combine.rows = y;
    if (takes_choices(routing)) {
      // A kernel of this layer that ran before, if there is one, does not write the routing.
      const bool settled = !shared_.empty() || w4a4();
      run_experts(routed_, x, rows, {.choices = &routing, .settled = settled}, y, stream);
    } else {
      // Between the order of the rows and a product at least x is gathered.
      const DispatchJob routed = order(routing, stream);
      run_experts(routed_, gather(x, routed), rows, {.order = &routed}, y, stream);
      combine.row_of = routed.row_of;
    }
  }
  device_backend(device_).combine_rows(combine);
}

void DeviceMoe::forward(const MatrixView& x, const Routing& routing, const MatrixSpan& out,
                        Stream stream) const {
  const std::lock_guard lock(mutex_);
  if (!w4a4()) {
    require<ValueError>(x.dtype != DType::f32, "Moe: x.dtype = f32, must be bf16 or f16 on {}",
                        device_name(device_));
    MatrixView rows = x;
    if (x.rows == 1) rows.stride = x.cols;  // of one row it says nothing
    return run(rows, routing, out, stream);
  }
  const QuantizedSpan quantized = work_.x.get(x.rows, x.cols, input_.scope, device_);
  quantize_into(x, quantized, input_.options(stream));
  run(QuantizedView(quantized), routing, out, stream);
}

void DeviceMoe::forward(const QuantizedView& x, const Routing& routing, const MatrixSpan& out,
                        Stream stream) const {
  const std::lock_guard lock(mutex_);
  run(x, routing, out, stream);
}

}  // namespace nvfp4
