#include "backends/device_backend.h"
#include "core/parallel_for.h"
#include "core/require.h"
#include "ops/options.h"

namespace nvfp4 {

void dequantize_into(QuantizedView q, MatrixSpan out, std::string_view backend, Stream stream) {
  require_quantized("dequantize", "q", q);
  require_matrix("dequantize", "out", out);
  require<ShapeError>(out.rows == q.shape.rows && out.cols == q.shape.cols,
                      "dequantize: out has shape [{}, {}], must be [{}, {}]", out.rows, out.cols,
                      q.shape.rows, q.shape.cols);
  require_on("dequantize", "out", out.device, q.device);
  if (q.device.type == DeviceType::cuda) return device_backend(q.device).dequantize(q, out, stream);
  const Backend& chosen = find_backend(backend);
  const std::vector<Tile> tiles = make_tiles(q.shape, dtype_size(out.dtype));
  parallel_for(static_cast<std::int64_t>(tiles.size()),
               [&](std::int64_t i) { chosen.decode(q, out, tiles[static_cast<std::size_t>(i)]); });
}

Matrix dequantize(QuantizedView q, DType dtype, std::string_view backend) {
  require_quantized("dequantize", "q", q);
  Matrix out(dtype, q.shape.rows, q.shape.cols, q.device);
  dequantize_into(q, out.span(), backend);
  return out;
}

QuantizationError quantization_error(MatrixView x, QuantizedView q, std::string_view backend) {
  require_quantized("quantization_error", "q", q);
  require_matrix("quantization_error", "x", x);
  require<ShapeError>(x.rows == q.shape.rows && x.cols == q.shape.cols,
                      "quantization_error: x has shape [{}, {}], must be [{}, {}]", x.rows, x.cols,
                      q.shape.rows, q.shape.cols);
  require_cpu("quantization_error", "x", x.device);
  require_cpu("quantization_error", "q", q.device);
  const Backend& chosen = find_backend(backend);
  const std::vector<Tile> tiles = make_tiles(q.shape, dtype_size(x.dtype));
  std::vector<QuantizationError> parts(tiles.size());
  parallel_for(static_cast<std::int64_t>(tiles.size()), [&](std::int64_t i) {
    const auto j = static_cast<std::size_t>(i);
    parts[j] = chosen.error(x, q, tiles[j]);
  });
  QuantizationError all;
  for (const QuantizationError& part : parts) {
    all.squared_error += part.squared_error;
    all.squared_norm += part.squared_norm;
  }
  return all;
}

}  // namespace nvfp4
