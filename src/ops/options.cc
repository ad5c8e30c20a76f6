#include "ops/options.h"

#include <algorithm>
#include <cmath>

#include "core/require.h"

namespace nvfp4 {
namespace {
constexpr std::int64_t kTileBytes = 512 * 1024;
constexpr std::uintptr_t kOperandAlignment = 16;
}  // namespace

void require_matrix(const char* op, const char* argument, const MatrixView& x) {
  require<ShapeError>(x.rows >= 0 && x.cols >= 0, "{}: {} has shape [{}, {}], must not be negative",
                      op, argument, x.rows, x.cols);
  require<ShapeError>(x.stride >= x.cols, "{}: {}.stride = {}, must be at least cols = {}", op,
                      argument, x.stride, x.cols);
  require<ShapeError>(x.rows == 0 || x.stride <= kMaxMatrixElements / x.rows,
                      "{}: {} has shape [{}, {}], more than 2^48 elements", op, argument, x.rows,
                      x.cols);
  require_memory(op, argument, x.data, x.size(), static_cast<std::size_t>(dtype_size(x.dtype)));
  require_aligned(op, argument, x.data, x.device);
}

void require_memory(const char* op, const char* argument, const void* data, std::int64_t count,
                    std::size_t alignment) {
  require<ShapeError>(count == 0 || data != nullptr, "{}: {} is null", op, argument);
  require<ShapeError>(reinterpret_cast<std::uintptr_t>(data) % alignment == 0,
                      "{}: {} = {}, must be aligned to its elements of {} bytes", op, argument,
                      data, alignment);
}

void require_aligned(const char* op, const char* argument, const void* data, Device device) {
  require<ShapeError>(device.type == DeviceType::cpu ||
                          reinterpret_cast<std::uintptr_t>(data) % kOperandAlignment == 0,
                      "{}: {}.data = {}, must be aligned to {} bytes on {}", op, argument, data,
                      kOperandAlignment, device_name(device));
}

void require_cpu(const char* op, const char* argument, Device device) {
  require<UnsupportedError>(device.type == DeviceType::cpu,
                            "{}: {} lies on {}, this operation works on the CPU only", op, argument,
                            device_name(device));
}

void require_on(const char* op, const char* argument, Device device, Device expected,
                bool host_will_do) {
  require<DeviceError>(device == expected || (host_will_do && device.type == DeviceType::cpu),
                       ErrorCode::other_device,
                       "{}: {} lies on {}, must lie on {} as the input does", op, argument,
                       device_name(device), device_name(expected));
}

QuantizedShape quantized_shape(const char* op, const MatrixView& x,
                               const QuantizeOptions& options) {
  require_matrix(op, "x", x);
  const QuantizedShape shape = quantized_shape(op, x.rows, x.cols, x.device, options);
  const auto weights = static_cast<std::int64_t>(options.weights.size());
  require<ShapeError>(weights == 0 || weights == shape.depth(),
                      "{}: {} weights given, must be none or K = {}", op, weights, shape.depth());
  require<ValueError>(weights == 0 || quantizer_of(options) == Quantizer::mse,
                      "{}: weights are for the mse quantizer, not for {}", op,
                      quantizer_name(quantizer_of(options)));
  const MatrixView& hessian = options.hessian;
  if (!is_given(hessian)) return shape;
  require<ValueError>(quantizer_of(options) == Quantizer::mse,
                      "{}: a hessian is for the mse quantizer, not for {}", op,
                      quantizer_name(quantizer_of(options)));
  require<ValueError>(weights == 0, "{}: weights and hessian given, must be one of them", op);
  require_matrix(op, "hessian", hessian);
  require_on(op, "hessian", hessian.device, x.device);
  require<ValueError>(hessian.dtype == DType::f32, "{}: hessian.dtype = {}, must be f32", op,
                      dtype_name(hessian.dtype));
  require<ShapeError>(hessian.rows == shape.depth() && hessian.cols == shape.block,
                      "{}: hessian has shape [{}, {}], must be [{}, {}]", op, hessian.rows,
                      hessian.cols, shape.depth(), shape.block);
  return shape;
}

QuantizedShape quantized_shape(const char* op, std::int64_t rows, std::int64_t cols, Device device,
                               const QuantizeOptions& options) {
  require<ValueError>(
      options.block == 16 || (options.block == 32 && quantizer_of(options) != Quantizer::max),
      "{}: block = {}, must be 16 (or 32 with four_over_six and mse)", op, options.block);
  const QuantizedShape shape{.rows = rows,
                             .cols = cols,
                             .axis = options.axis,
                             .block = options.block,
                             .layout = options.layout,
                             .scope = options.scope};
  require<ShapeError>(shape.depth() % shape.block == 0, ErrorCode::partial_block,
                      "{}: K = {} = {}, must be a multiple of {}", op,
                      options.axis == BlockAxis::rows ? "cols" : "rows", shape.depth(),
                      shape.block);
  const auto globals = static_cast<std::int64_t>(options.global.size());
  require<ShapeError>(globals == 0 || globals == shape.global_count(),
                      "{}: {} global scales given, must be none or {}", op, globals,
                      shape.global_count());
  require<ShapeError>(globals == 0 || options.global.data != nullptr, "{}: global.data is null",
                      op);
  if (globals > 0) require_on(op, "global", options.global.device, device, globals == 1);
  if (options.global.device.type == DeviceType::cpu)
    for (std::size_t i = 0; i < options.global.size(); ++i) require_usable(op, options.global[i]);
  return shape;
}

void require_output(const char* op, const QuantizedSpan& out, const QuantizedShape& shape,
                    Device device) {
  require<ShapeError>(out.shape == shape,
                      "{}: out.shape is [{}, {}] in blocks of {}, layout {}; the input and options "
                      "imply [{}, {}] in blocks of {}, layout {}, and the same axis and scope",
                      op, out.shape.rows, out.shape.cols, out.shape.block,
                      layout_name(out.shape.layout), shape.rows, shape.cols, shape.block,
                      layout_name(shape.layout));
  require_quantized(op, "out", out);
  require<ShapeError>(shape.global_count() == 0 || out.global_scale != nullptr,
                      "{}: out.global_scale is null", op);
  require_on(op, "out", out.device, device);
}

void require_usable(const char* op, const GlobalScale& g) {
  require<ValueError>(std::isfinite(g.divisor) && g.divisor > 0 && g.multiplier > 0 &&
                          std::isfinite(E4M3::kMax * (1.0f / g.divisor)) &&
                          std::isfinite(E4M3::kMax * g.multiplier),
                      "{}: global scale = {} (divisor {}), both must be positive, and 448 times "
                      "the scale finite",
                      op, g.multiplier, g.divisor);
}

void require_quantized(const char* op, const char* argument, const QuantizedView& q) {
  const QuantizedShape& s = q.shape;
  require<ShapeError>(
      s.rows >= 0 && s.cols >= 0 && (s.block == 16 || s.block == 32) && s.depth() % s.block == 0,
      ErrorCode::partial_block,
      "{}: {} has shape [{}, {}] in blocks of {}, K must be a multiple of the block", op, argument,
      s.rows, s.cols, s.block);
  require<ShapeError>(s.code_bytes() == 0 ||
                          (q.codes != nullptr && q.scales != nullptr && q.global_scale != nullptr),
                      "{}: {} has a null pointer", op, argument);
  require_aligned(op, argument, q.codes, q.device);
}

std::vector<Tile> make_tiles(const QuantizedShape& s, std::int64_t element_bytes) {
  std::vector<Tile> tiles;
  const std::int64_t vectors = s.vectors(), blocks = s.blocks();
  if (vectors == 0 || blocks == 0) return tiles;
  const std::int64_t block_bytes = s.block * element_bytes;
  // Rows: whole rows if they fit. Columns: whole rows of blocks, else ranges of columns.
  std::int64_t v_step, b_step;
  if (s.axis == BlockAxis::rows) {
    b_step = std::clamp<std::int64_t>(kTileBytes / block_bytes, 1, blocks);
    v_step = std::clamp<std::int64_t>(kTileBytes / (blocks * block_bytes), 1, vectors);
  } else {
    v_step =
        std::clamp<std::int64_t>(round_up(kTileBytes / block_bytes, 64), 64, round_up(vectors, 64));
    b_step = std::clamp<std::int64_t>(kTileBytes / (vectors * block_bytes), 1, blocks);
  }
  for (std::int64_t v = 0; v < vectors; v += v_step)
    for (std::int64_t b = 0; b < blocks; b += b_step)
      tiles.push_back({v, std::min(v + v_step, vectors), b, std::min(b + b_step, blocks)});
  return tiles;
}

std::vector<std::int64_t> row_cuts(std::int64_t rows, std::int64_t row_bytes) {
  const std::int64_t step =
      std::max<std::int64_t>(1, kTileBytes / std::max<std::int64_t>(1, row_bytes));
  std::vector<std::int64_t> cuts;
  for (std::int64_t r = 0; r < rows; r += step) cuts.push_back(r);
  cuts.push_back(rows);
  return cuts;
}

std::vector<float> normalized_weights(std::span<const float> weights) {
  float largest = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    require<ValueError>(std::isfinite(weights[i]) && weights[i] >= 0, ErrorCode::not_finite,
                        "quantize: weights[{}] = {}, must be finite and not negative", i,
                        weights[i]);
    largest = std::max(largest, weights[i]);
  }
  require<ValueError>(largest > 0, "quantize: all weights are 0, one must be positive");
  std::vector<float> scaled(weights.begin(), weights.end());
  const int exponent = std::ilogb(largest);
  for (float& w : scaled) w = std::ldexp(w, -exponent);
  return scaled;
}

}  // namespace nvfp4
