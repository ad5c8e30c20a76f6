#include "nvfp4/quantize.h"

#include <atomic>
#include <cmath>
#include <cstring>

#include "backends/device_backend.h"
#include "core/parallel_for.h"
#include "core/require.h"
#include "ops/measure.h"
#include "ops/options.h"
#include "ops/rows.h"
#include "quantizers/encode_block.h"

namespace nvfp4 {
namespace {

[[noreturn]] void throw_first_non_finite(const MatrixView& x) {
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c)
      if (const float value = x.at(r, c); !std::isfinite(value))
        throw ValueError(
            fmt::format("quantize: x[{}, {}] = {}, all elements must be finite", r, c, value),
            ErrorCode::not_finite);
  throw ValueError("quantize: x changed while it was read");
}

/// Returns the divisors of the given or measured global scales, and stores the multipliers.
std::vector<float> global_divisors(const Backend& backend, const MatrixView& x,
                                   const QuantizeOptions& options, const QuantizedSpan& out) {
  const auto n = static_cast<std::size_t>(out.shape.global_count());
  std::vector<float> divisors(n);
  const auto store = [&](std::size_t i, const GlobalScale& g) {
    divisors[i] = g.divisor;
    out.global_scale[i] = g.multiplier;
  };
  if (!options.global.empty()) {
    if (options.check_finite && !matrix_amax(backend, x).finite) throw_first_non_finite(x);
    for (std::size_t i = 0; i < n; ++i) store(i, options.global[i]);
  } else if (out.shape.scope == GlobalScope::tensor) {
    const AmaxResult measured = matrix_amax(backend, x);
    if (options.check_finite && !measured.finite) throw_first_non_finite(x);
    store(0, GlobalScale::from_amax(measured.amax, quantizer_of(options)));
  } else {
    if (options.check_finite && !matrix_amax(backend, x).finite) throw_first_non_finite(x);
    std::vector<float> measured(n);
    vector_amax(backend, x, options.axis, measured.data());
    for (std::size_t i = 0; i < n; ++i)
      store(i, GlobalScale::from_amax(measured[i], quantizer_of(options)));
  }
  return divisors;
}

void quantize_on_device(const MatrixView& x, const QuantizedSpan& out,
                        const QuantizeOptions& options) {
  require<UnsupportedError>(!options.check_finite,
                            "quantize: check_finite would wait for the device; not on cuda");
  device_backend(x.device).quantize(
      {.x = x,
       .out = out,
       .quantizer = quantizer_of(options),
       .global = options.global,
       .weights = options.weights.empty() ? nullptr : options.weights.data(),
       .hessian = options.hessian,
       .stream = options.stream});
}

}  // namespace

float scale_max(Quantizer q) { return largest_scale(q); }

GlobalScale GlobalScale::from_amax(float amax, Quantizer q) {
  require<ValueError>(amax >= 0, "GlobalScale::from_amax: amax = {}, must be a number >= 0", amax);
  return global_scale_for(amax, q);
}

GlobalScale GlobalScale::from_multiplier(float multiplier) {
  const GlobalScale g{multiplier, 1.0f / multiplier};
  require_usable("GlobalScale::from_multiplier", g);
  return g;
}

GlobalScale GlobalScale::from_divisor(float divisor) {
  const GlobalScale g{1.0f / divisor, divisor};
  require_usable("GlobalScale::from_divisor", g);
  return g;
}

namespace {
constexpr std::string_view kNames[] = {"max", "four_over_six", "mse"};
}
std::string_view quantizer_name(Quantizer q) { return kNames[static_cast<int>(q)]; }

std::vector<std::string> quantizer_names() { return {std::begin(kNames), std::end(kNames)}; }

Quantizer quantizer_from_name(std::string_view name) {
  for (int i = 0; i < static_cast<int>(std::size(kNames)); ++i)
    if (kNames[i] == name) return static_cast<Quantizer>(i);
  throw ValueError(
      fmt::format("quantizer = '{}', must be one of {}", name, fmt::join(kNames, ", ")),
      ErrorCode::not_a_choice);
}

void quantize_into(MatrixView x, QuantizedSpan out, const QuantizeOptions& options) {
  const QuantizedShape shape = quantized_shape("quantize", x, options);
  require_output("quantize", out, shape, x.device);
  if (x.device.type == DeviceType::cuda) return quantize_on_device(x, out, options);
  const Backend& backend = find_backend(options.backend);
  if (options.global.empty() && shape.scope == GlobalScope::vector &&
      shape.axis == BlockAxis::rows && options.weights.empty() && !is_given(options.hessian)) {
    if (options.check_finite && !matrix_amax(backend, x).finite) throw_first_non_finite(x);
    return quantize_rows(backend, {.rows = {.x = x, .cols = x.cols},
                                   .out = out,
                                   .quantizer = quantizer_of(options)});  // each row is read once
  }

  const std::vector<float> divisors = global_divisors(backend, x, options, out);
  std::vector<float> weights;
  if (!options.weights.empty()) weights = normalized_weights(options.weights);
  if (shape.layout != ScaleLayout::linear && shape.scale_bytes() > 0)
    std::memset(out.scales, 0, static_cast<std::size_t>(shape.scale_bytes()));

  const EncodeJob job{x,
                      out,
                      quantizer_of(options),
                      divisors.data(),
                      weights.empty() ? nullptr : weights.data(),
                      options.hessian};
  const std::vector<Tile> tiles = make_tiles(shape, dtype_size(x.dtype));
  parallel_for(static_cast<std::int64_t>(tiles.size()),
               [&](std::int64_t i) { backend.encode(job, tiles[static_cast<std::size_t>(i)]); });
}

QuantizedMatrix quantize(MatrixView x, const QuantizeOptions& options) {
  QuantizedMatrix out(quantized_shape("quantize", x, options), x.device);
  quantize_into(x, out.span(), options);
  return out;
}

}  // namespace nvfp4
