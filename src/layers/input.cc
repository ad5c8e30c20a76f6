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
    require<ShapeError>(placed_ == nullptr, "memory has {} bytes for some rows, must have {}",
                        bytes_, bytes);
    data_ = Buffer(bytes, device);
    bytes_ = bytes;
  }
  void* const data = placed_ == nullptr ? data_.data() : placed_;
  return {data, dtype, rows, cols, cols, device};
}

std::span<std::byte> Rows::bytes(std::int64_t count, Device device) {
  const MatrixSpan m = get(DType::f32, 1, ceil_div(count, 4), device);
  return {static_cast<std::byte*>(m.data), static_cast<std::size_t>(count)};
}

void Rows::place(std::byte* memory, std::int64_t bytes) {
  placed_ = memory;
  bytes_ = bytes;
}

QuantizedSpan QuantizedRows::get(std::int64_t rows, std::int64_t cols, GlobalScope scope,
                                 Device device) {
  const auto part = [&](Rows& memory, std::int64_t bytes) {
    return memory.bytes(bytes, device).data();
  };
  const std::int64_t globals =
      std::max<std::int64_t>(rows, 1) * static_cast<std::int64_t>(sizeof(float));
  return {{.rows = rows, .cols = cols, .scope = scope},
          reinterpret_cast<std::uint8_t*>(part(codes_, rows * cols / 2)),
          reinterpret_cast<std::uint8_t*>(part(scales_, rows * cols / kBlock)),
          reinterpret_cast<float*>(part(global_, globals)),
          device};
}

void QuantizedRows::place(Arena& arena, std::int64_t rows, std::int64_t elements) {
  const auto part = [&](Rows& memory, std::int64_t bytes) {
    bytes = ceil_div(bytes, 4) * 4;
    memory.place(arena.take(bytes), bytes);
  };
  part(codes_, elements / 2);
  part(scales_, elements / kBlock);
  part(global_, std::max<std::int64_t>(rows, 1) * static_cast<std::int64_t>(sizeof(float)));
}

void require_tokens(const char* op, std::int64_t rows, std::int64_t max_tokens) {
  require<ShapeError>(max_tokens <= 0 || rows <= max_tokens,
                      "{}: x.rows = {}, must be at most max_tokens = {}", op, rows, max_tokens);
}

void require_w4a4(const char* op, Scheme scheme) {
  require<ValueError>(scheme == Scheme::w4a4,
                      "{}: the layer's scheme is W4A16, which takes no quantized "
                      "activations",
                      op);
}

}  // namespace nvfp4
