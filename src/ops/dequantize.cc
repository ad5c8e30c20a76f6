#include <algorithm>
#include <iterator>

#include "backends/device_backend.h"
#include "core/parallel_for.h"
#include "core/require.h"
#include "ops/error_parts.h"
#include "ops/options.h"
#include "quantizers/error_sum.h"

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

namespace {

/// Number of groups of a task: about half an L2 cache of FP32.
constexpr std::int64_t kGroupsPerTask = 64;

void require_error_arguments(const MatrixView& x, const QuantizedView& q) {
  require_quantized("quantization_error", "q", q);
  require_matrix("quantization_error", "x", x);
  require<ShapeError>(x.rows == q.shape.rows && x.cols == q.shape.cols,
                      "quantization_error: x has shape [{}, {}], must be [{}, {}]", x.rows, x.cols,
                      q.shape.rows, q.shape.cols);
}

}  // namespace

QuantizationError quantization_error(MatrixView x, QuantizedView q, std::string_view backend) {
  require_error_arguments(x, q);
  require_cpu("quantization_error", "x", x.device);
  require_cpu("quantization_error", "q", q.device);
  const Backend& chosen = find_backend(backend);
  const std::int64_t blocks = q.shape.vectors() * q.shape.blocks(),
                     groups = error_part_count(q.shape);
  std::vector<QuantizationError> parts(static_cast<std::size_t>(groups));
  parallel_for(ceil_div(groups, kGroupsPerTask), [&](std::int64_t task) {
    const std::int64_t end = std::min(groups, (task + 1) * kGroupsPerTask);
    for (std::int64_t g = task * kGroupsPerTask; g < end; ++g) {
      alignas(64) float errors[kErrorGroup], norms[kErrorGroup];
      const std::int64_t n = std::min<std::int64_t>(blocks - g * kErrorGroup, kErrorGroup);
      chosen.block_errors(x, q, g * kErrorGroup, n, errors, norms);
      std::fill(errors + n, std::end(errors), 0.0f);
      std::fill(norms + n, std::end(norms), 0.0f);
      parts[static_cast<std::size_t>(g)] = {sum_group(errors), sum_group(norms)};
    }
  });
  return sum_parts(parts);
}

void error_parts_into(MatrixView x, QuantizedView q, QuantizationError* parts, Stream stream) {
  require_error_arguments(x, q);
  require_on("quantization_error", "x", x.device, q.device);
  require_array("quantization_error", "parts", parts, error_part_count(q.shape));
  device_backend(q.device).error_parts(x, q, parts, stream);
}

QuantizationError sum_parts(std::span<const QuantizationError> parts) {
  QuantizationError all;
  for (const QuantizationError& part : parts) {
    all.squared_error += part.squared_error;
    all.squared_norm += part.squared_norm;
  }
  return all;
}

}  // namespace nvfp4
