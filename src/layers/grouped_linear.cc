#include <optional>
#include <utility>

#include "core/lending_pool.h"
#include "core/require.h"
#include "layers/fragments.h"
#include "layers/input.h"
#include "layers/weights.h"
#include "ops/options.h"

namespace nvfp4 {

struct GroupedLinear::Impl {
  Scheme scheme = Scheme::nvfp4;
  InputQuantizer input;
  std::vector<PackedWeights> weights;       ///< on the CPU
  std::optional<FragmentLinear> on_device;  ///< on a GPU
  std::int64_t groups = 0, inputs = 0, outputs = 0;
  std::vector<float> bias;
  bool batch_invariant = false;
  std::int64_t max_tokens = 0;
  Device device;
  std::string backend;
  mutable LendingPool<QuantizedRows> rows;

  GroupedGemmOptions gemm() const {
    return {.bias = bias, .batch_invariant = batch_invariant, .backend = backend};
  }
  void require_on_cpu() const {
    require<UnsupportedError>(!on_device,
                              "GroupedLinear: row_ends are of the host, must be int32 on {} as the "
                              "layer",
                              device_name(device));
  }
  /// Calls f with x as the scheme wants it.
  template <class F>
  void with_input(const MatrixView& x, Stream stream, F&& f) const {
    require_matrix("GroupedLinear", "x", x);
    require_tokens("GroupedLinear", x.rows, max_tokens);
    if (scheme == Scheme::nvfp4a16) return f(x);
    require<ShapeError>(x.cols == inputs || x.cols == groups * inputs,
                        "GroupedLinear: x.cols = {}, must be K = {} or G·K = {}", x.cols, inputs,
                        groups * inputs);
    LendingPool<QuantizedRows>::Lease lease(rows);
    const QuantizedSpan quantized = lease->get(x.rows, x.cols, input.scope);
    quantize_into(x, quantized, input.options(stream));
    f(QuantizedView(quantized));
  }
};

GroupedLinear::GroupedLinear(std::span<const WeightView> groups, const LinearOptions& options) {
  constexpr const char* kOp = "GroupedLinear";
  require_layer_device(kOp, options.device);
  require<ShapeError>(!groups.empty(), "{}: no groups, must be at least one", kOp);
  for (const WeightView& w : groups)
    require<ShapeError>(w.outputs() == groups[0].outputs() && w.inputs() == groups[0].inputs(),
                        "{}: a group has [N, K] = [{}, {}], must be [{}, {}] as the first", kOp,
                        w.outputs(), w.inputs(), groups[0].outputs(), groups[0].inputs());
  auto impl = std::make_shared<Impl>();
  impl->scheme = options.scheme;
  impl->input = {options.activation, largest_input_scale(groups), options.activation_quantizer,
                 options.backend};
  impl->groups = static_cast<std::int64_t>(groups.size());
  impl->inputs = groups[0].inputs();
  impl->outputs = groups[0].outputs();
  const auto n = static_cast<std::size_t>(groups[0].outputs()) * groups.size();
  require<ShapeError>(options.bias.empty() || options.bias.size() == n,
                      "{}: bias has {} elements, must have none or G·N = {}", kOp,
                      options.bias.size(), n);
  if (options.device.type == DeviceType::cuda) {
    std::vector<std::vector<WeightView>> list;
    for (const WeightView& w : groups) list.push_back({w});
    impl->on_device.emplace(kOp, list, options, impl->input);
  } else {
    for (const WeightView& w : groups)
      impl->weights.push_back(pack_parts(kOp, {&w, 1}, options.weight_quantizer, options.backend));
    impl->bias.assign(options.bias.begin(), options.bias.end());
    if (options.scheme == Scheme::nvfp4 && options.max_tokens > 0)
      LendingPool<QuantizedRows>::Lease(impl->rows)
          ->get(options.max_tokens, impl->groups * impl->inputs, impl->input.scope);
  }
  impl->batch_invariant = options.batch_invariant;
  impl->max_tokens = options.max_tokens;
  impl->device = options.device;
  impl->backend = options.backend;
  impl_ = std::move(impl);
}

const GroupedLinear::Impl& GroupedLinear::impl() const {
  require<ValueError>(impl_ != nullptr, "GroupedLinear: the layer is empty");
  return *impl_;
}

std::int64_t GroupedLinear::groups() const { return impl().groups; }
std::int64_t GroupedLinear::inputs() const { return impl().inputs; }
std::int64_t GroupedLinear::outputs() const { return impl().outputs; }
Scheme GroupedLinear::scheme() const { return impl().scheme; }
Device GroupedLinear::device() const { return impl().device; }
std::int64_t GroupedLinear::weight_bytes() const {
  return impl().on_device ? impl().on_device->weights().bytes()
                          : impl().groups * impl().weights[0].bytes();
}

QuantizedActivation GroupedLinear::quantize(MatrixView x, Stream stream) const {
  return impl().input("GroupedLinear::quantize", impl().scheme, x, stream);
}

void GroupedLinear::forward_into(MatrixView x, MatrixSpan out, Stream stream) const {
  const Impl& m = impl();
  if (m.on_device) return m.on_device->forward("GroupedLinear", x, out, stream);
  m.with_input(x, stream,
               [&](const auto& input) { gemm_every_group_into(input, m.weights, out, m.gemm()); });
}
void GroupedLinear::forward_into(const QuantizedActivation& x, MatrixSpan out,
                                 Stream stream) const {
  const Impl& m = impl();
  if (m.on_device) return m.on_device->forward("GroupedLinear", x.view(), out, stream);
  require_w4a4("GroupedLinear", m.scheme);
  require_tokens("GroupedLinear", x.rows(), m.max_tokens);
  gemm_every_group_into(x.view(), m.weights, out, m.gemm());
}

void GroupedLinear::forward_rows_into(MatrixView x, std::span<const std::int64_t> row_ends,
                                      MatrixSpan out, Stream stream) const {
  const Impl& m = impl();
  m.require_on_cpu();
  m.with_input(x, stream, [&](const auto& input) {
    grouped_gemm_into(input, m.weights, row_ends, out, m.gemm());
  });
}
void GroupedLinear::forward_rows_into(const QuantizedActivation& x,
                                      std::span<const std::int64_t> row_ends, MatrixSpan out,
                                      Stream) const {
  const Impl& m = impl();
  m.require_on_cpu();
  require_w4a4("GroupedLinear", m.scheme);
  require_tokens("GroupedLinear", x.rows(), m.max_tokens);
  grouped_gemm_into(x.view(), m.weights, row_ends, out, m.gemm());
}

void GroupedLinear::forward_rows_into(MatrixView x, std::span<const std::int32_t> row_ends,
                                      MatrixSpan out, Stream stream) const {
  const Impl& m = impl();
  if (m.on_device) return m.on_device->forward_rows("GroupedLinear", x, row_ends, out, stream);
  forward_rows_into(x, std::vector<std::int64_t>(row_ends.begin(), row_ends.end()), out, stream);
}
void GroupedLinear::forward_rows_into(const QuantizedActivation& x,
                                      std::span<const std::int32_t> row_ends, MatrixSpan out,
                                      Stream stream) const {
  const Impl& m = impl();
  if (m.on_device)
    return m.on_device->forward_rows("GroupedLinear", x.view(), row_ends, out, stream);
  forward_rows_into(x, std::vector<std::int64_t>(row_ends.begin(), row_ends.end()), out, stream);
}

}  // namespace nvfp4
