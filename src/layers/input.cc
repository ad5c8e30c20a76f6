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

MatrixSpan Rows::get(DType dtype, std::int64_t rows, std::int64_t cols, Device device) {
  const std::int64_t bytes = rows * cols * dtype_size(dtype);
  if (bytes > bytes_) {
    data_ = Buffer(bytes, device);
    bytes_ = bytes;
  }
  return {data_.data(), dtype, rows, cols, cols, device};
}

std::span<std::byte> Rows::bytes(std::int64_t count, Device device) {
  const MatrixSpan m = get(DType::f32, 1, ceil_div(count, 4), device);
  return {static_cast<std::byte*>(m.data), static_cast<std::size_t>(count)};
}

QuantizedSpan QuantizedRows::get(std::int64_t rows, std::int64_t cols, GlobalScope scope,
                                 Device device) {
  if (rows * cols > elements_) {
    codes_ = Buffer(rows * cols / 2, device);
    scales_ = Buffer(rows * cols / kBlock, device);
    elements_ = rows * cols;
  }
  if (std::max<std::int64_t>(rows, 1) > rows_) {
    global_ =
        Buffer(std::max<std::int64_t>(rows, 1) * static_cast<std::int64_t>(sizeof(float)), device);
    rows_ = std::max<std::int64_t>(rows, 1);
  }
  return {{.rows = rows, .cols = cols, .scope = scope},
          static_cast<std::uint8_t*>(codes_.data()),
          static_cast<std::uint8_t*>(scales_.data()),
          static_cast<float*>(global_.data()),
          device};
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
