#include "layers/input.h"

#include <algorithm>

#include "core/require.h"

namespace nvfp4 {

InputQuantizer::InputQuantizer(const ActivationScale& scale,
                               const std::optional<GlobalScale>& stored, Quantizer quantizer_,
                               std::string backend_)
    : quantizer(quantizer_), backend(std::move(backend_)) {
  if (scale.kind() == ActivationScale::Kind::fixed) global = scale.scale();
  if (scale.kind() == ActivationScale::Kind::stored) global = stored;
  scope = global ? GlobalScope::tensor : scale.scope();
}

QuantizeOptions InputQuantizer::options(Stream stream) const {
  QuantizeOptions o{.quantizer = quantizer, .scope = scope, .backend = backend, .stream = stream};
  if (global) o.global = {&*global, 1};
  return o;
}

QuantizedActivation InputQuantizer::operator()(const char* op, Scheme scheme, const MatrixView& x,
                                               Stream stream) const {
  require_w4a4(op, scheme);
  return quantize_activation(x, options(stream));
}

QuantizedSpan QuantizedRows::get(std::int64_t rows, std::int64_t cols, GlobalScope scope) {
  if (rows * cols > elements_) {
    elements_ = rows * cols;
    codes_ = Buffer(elements_ / 2, {});
    scales_ = Buffer(elements_ / kBlock, {});
  }
  if (std::max<std::int64_t>(rows, 1) > rows_) {
    rows_ = std::max<std::int64_t>(rows, 1);
    global_ = Buffer(rows_ * static_cast<std::int64_t>(sizeof(float)), {});
  }
  return {{.rows = rows, .cols = cols, .scope = scope},
          static_cast<std::uint8_t*>(codes_.data()),
          static_cast<std::uint8_t*>(scales_.data()),
          static_cast<float*>(global_.data())};
}

void require_tokens(const char* op, std::int64_t rows, std::int64_t max_tokens) {
  require<ShapeError>(max_tokens <= 0 || rows <= max_tokens,
                      "{}: x.rows = {}, must be at most max_tokens = {}", op, rows, max_tokens);
}

void require_w4a4(const char* op, Scheme scheme) {
  require<ValueError>(scheme == Scheme::nvfp4,
                      "{}: the layer's scheme is nvfp4a16 (W4A16), which takes no quantized "
                      "activations",
                      op);
}

}  // namespace nvfp4
