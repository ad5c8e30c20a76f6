#include <optional>
#include <utility>

#include "core/lending_pool.h"
#include "core/require.h"
#include "layers/fragments.h"
#include "layers/input.h"
#include "layers/weights.h"
#include "ops/options.h"

namespace nvfp4 {

struct Linear::Impl {
  Scheme scheme = Scheme::nvfp4;
  InputQuantizer input;
  PackedWeights weights;                    ///< on the CPU
  std::optional<FragmentLinear> on_device;  ///< on a GPU
  std::vector<float> bias;
  bool batch_invariant = false;
  std::int64_t max_tokens = 0;
  Device device;
  std::string backend;
  mutable LendingPool<QuantizedRows> rows;

  std::int64_t inputs() const { return on_device ? on_device->weights().cols() : weights.cols(); }
  std::int64_t outputs() const { return on_device ? on_device->weights().rows() : weights.rows(); }
  GemmOptions gemm() const {
    return {.bias = bias, .batch_invariant = batch_invariant, .backend = backend};
  }
};

Linear::Linear(std::span<const WeightView> parts, const LinearOptions& options) {
  constexpr const char* kOp = "Linear";
  require_layer_device(kOp, options.device);
  auto impl = std::make_shared<Impl>();
  impl->scheme = options.scheme;
  impl->input = {options.activation, largest_input_scale(parts), options.activation_quantizer,
                 options.backend};
  std::int64_t outputs = 0;
  for (const WeightView& w : parts) outputs += w.outputs();
  require<ShapeError>(
      options.bias.empty() || static_cast<std::int64_t>(options.bias.size()) == outputs,
      "{}: bias has {} elements, must have none or {}", kOp, options.bias.size(), outputs);
  if (options.device.type == DeviceType::cuda) {
    const std::vector<WeightView> group(parts.begin(), parts.end());
    impl->on_device.emplace(kOp, std::span(&group, 1), options, impl->input);
  } else {
    impl->weights = pack_parts(kOp, parts, options.weight_quantizer, options.backend);
    impl->bias.assign(options.bias.begin(), options.bias.end());
    if (options.scheme == Scheme::nvfp4 && options.max_tokens > 0)
      LendingPool<QuantizedRows>::Lease(impl->rows)
          ->get(options.max_tokens, impl->inputs(), impl->input.scope);
  }
  impl->batch_invariant = options.batch_invariant;
  impl->max_tokens = options.max_tokens;
  impl->device = options.device;
  impl->backend = options.backend;
  impl_ = std::move(impl);
}

const Linear::Impl& Linear::impl() const {
  require<ValueError>(impl_ != nullptr, "Linear: the layer is empty");
  return *impl_;
}

std::int64_t Linear::inputs() const { return impl().inputs(); }
std::int64_t Linear::outputs() const { return impl().outputs(); }
Scheme Linear::scheme() const { return impl().scheme; }
Device Linear::device() const { return impl().device; }
std::int64_t Linear::weight_bytes() const {
  return impl().on_device ? impl().on_device->weights().bytes() : impl().weights.bytes();
}

QuantizedActivation Linear::quantize(MatrixView x, Stream stream) const {
  return impl().input("Linear::quantize", impl().scheme, x, stream);
}

void Linear::forward_into(MatrixView x, MatrixSpan out, Stream stream) const {
  const Impl& m = impl();
  if (m.on_device) return m.on_device->forward("Linear", x, out, stream);
  require_matrix("Linear", "x", x);
  require_tokens("Linear", x.rows, m.max_tokens);
  if (m.scheme == Scheme::nvfp4a16) return gemm_into(x, m.weights, out, m.gemm());
  require<ShapeError>(x.cols == m.weights.cols(), "Linear: x.cols = {}, must be K = {}", x.cols,
                      m.weights.cols());
  LendingPool<QuantizedRows>::Lease rows(m.rows);
  const QuantizedSpan quantized = rows->get(x.rows, x.cols, m.input.scope);
  quantize_into(x, quantized, m.input.options(stream));
  gemm_into(quantized, m.weights, out, m.gemm());
}

void Linear::forward_into(const QuantizedActivation& x, MatrixSpan out, Stream stream) const {
  const Impl& m = impl();
  if (m.on_device) return m.on_device->forward("Linear", x.view(), out, stream);
  require_w4a4("Linear", m.scheme);
  require_tokens("Linear", x.rows(), m.max_tokens);
  gemm_into(x.view(), m.weights, out, m.gemm());
}

Matrix Linear::forward(MatrixView x, DType dtype, Stream stream) const {
  Matrix out(dtype, x.rows, outputs(), x.device);
  forward_into(x, out.span(), stream);
  return out;
}
Matrix Linear::forward(const QuantizedActivation& x, DType dtype, Stream stream) const {
  Matrix out(dtype, x.rows(), outputs(), x.view().device);
  forward_into(x, out.span(), stream);
  return out;
}

}  // namespace nvfp4
