#include "nvfp4/choose_global_scale.h"

#include <algorithm>

#include "core/device_memory.h"
#include "core/require.h"
#include "ops/error_parts.h"
#include "ops/options.h"

namespace nvfp4 {
namespace {

/// Returns the largest magnitude of x. NaN is ignored.
float measured_amax(const MatrixView& x, const QuantizeOptions& options) {
  if (x.device.type == DeviceType::cpu) return amax(x, options.backend);
  const Buffer there(sizeof(float), x.device);
  float here = 0;
  amax_into(x, static_cast<float*>(there.data()), GlobalScope::tensor, options.axis, {},
            options.stream);
  device_copy({}, &here, sizeof here, x.device, there.data(), sizeof here, sizeof here, 1,
              options.stream);
  synchronize(x.device, options.stream);
  return here;
}

double squared_error(const MatrixView& x, const QuantizedView& q, const QuantizeOptions& options) {
  if (x.device.type == DeviceType::cpu)
    return quantization_error(x, q, options.backend).squared_error;
  std::vector<QuantizationError> here(static_cast<std::size_t>(error_part_count(q.shape)));
  const auto bytes = static_cast<std::int64_t>(here.size() * sizeof(QuantizationError));
  const Buffer there(bytes, x.device);
  error_parts_into(x, q, static_cast<QuantizationError*>(there.data()), options.stream);
  device_copy({}, here.data(), bytes, x.device, there.data(), bytes, bytes, 1, options.stream);
  synchronize(x.device, options.stream);
  return sum_parts(here).squared_error;
}

}  // namespace

GlobalScale choose_global_scale(std::span<const MatrixView> group, const QuantizeOptions& options) {
  const char* const op = "choose_global_scale";
  require<ValueError>(quantizer_of(options) == Quantizer::mse,
                      "{}: quantizer = {}, must be mse: the others have one global scale", op,
                      quantizer_name(quantizer_of(options)));
  require<ValueError>(options.scope == GlobalScope::tensor, "{}: scope = vector, must be tensor",
                      op);
  require<ValueError>(options.global.empty(), "{}: global is given, must be empty", op);
  require<ValueError>(options.weights.empty() && !is_given(options.hessian),
                      "{}: weights or hessian given; it compares plain squared errors", op);
  float largest = 0;
  for (const MatrixView& x : group) {
    quantized_shape(op, x, options);
    largest = std::max(largest, measured_amax(x, options));
  }
  GlobalScale best;
  double least = 0;
  for (const Quantizer range : {Quantizer::mse, Quantizer::max}) {
    const GlobalScale global = GlobalScale::from_amax(largest, range);
    QuantizeOptions with = options;
    with.global = {&global, 1};
    double error = 0;
    for (const MatrixView& x : group) error += squared_error(x, quantize(x, with).view(), options);
    if (range == Quantizer::mse || error < least) {
      least = error;
      best = global;
    }
  }
  return best;
}

}  // namespace nvfp4
