#include "quantized.h"

#include <fmt/format.h>

#include <utility>

#include "nvfp4/error.h"

namespace nvfp4::python {
namespace {

static_assert(sizeof(GlobalScale) == 2 * sizeof(float), "a pair of floats on a device");

}  // namespace

Options::Options(const std::string& quantizer, const std::string& axis, int block,
                 const std::string& layout, const std::string& scope, std::optional<Input> globals,
                 bool divisor, std::optional<Input> weights, std::optional<Input> hessian,
                 bool check_finite, std::string backend, std::uintptr_t stream)
    : globals_(std::move(globals)),
      weights_(std::move(weights)),
      hessian_(std::move(hessian)),
      backend_(std::move(backend)) {
  options_.quantizer = quantizer_from_name(quantizer);
  options_.axis = axis_from_name(axis);
  options_.block = block;
  options_.layout = layout_from_name(layout);
  options_.scope = scope_from_name(scope);
  options_.weights = floats_of("weights", weights_);
  if (hessian_) options_.hessian = matrix_of("hessian", *hessian_);
  options_.check_finite = check_finite;
  options_.stream = stream_of(stream);
  if (!globals_) return;
  const std::span<const float> values = floats_of("global_scale", globals_);
  const Device device = device_of("global_scale", *globals_);
  if (globals_->ndim() == 2) {
    if (globals_->shape(1) != 2)
      throw ShapeError("global_scale must be [n], or [n, 2]: multiplier and divisor");
    options_.global = {reinterpret_cast<const GlobalScale*>(values.data()), values.size() / 2,
                       device};
    return;
  }
  if (device.type == DeviceType::cuda)
    throw ShapeError("global_scale on CUDA must be [n, 2]: multiplier and divisor");
  for (const float v : values)
    host_globals_.push_back(divisor ? GlobalScale::from_divisor(v)
                                    : GlobalScale::from_multiplier(v));
}

QuantizeOptions Options::get() const {
  QuantizeOptions options = options_;
  options.backend = backend_;
  if (!host_globals_.empty()) options.global = host_globals_;
  return options;
}

}  // namespace nvfp4::python
