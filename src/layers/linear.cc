#include <utility>

#include "core/require.h"
#include "layers/linear_layer.h"

namespace nvfp4 {

struct Linear::Impl : LinearLayer {
  using LinearLayer::LinearLayer;
};

namespace {
constexpr const char* kOp = "Linear";
}  // namespace

Linear::Linear(std::span<const WeightView> parts, const LinearOptions& options) {
  const std::vector<WeightView> group(parts.begin(), parts.end());
  impl_ = std::make_shared<Impl>(kOp, std::span(&group, 1), options);
}

const Linear::Impl& Linear::impl() const {
  require<ValueError>(impl_ != nullptr, "Linear: the layer is empty");
  return *impl_;
}

std::int64_t Linear::inputs() const { return impl().weights().cols(); }
std::int64_t Linear::outputs() const { return impl().weights().rows(); }
Scheme Linear::scheme() const { return impl().scheme(); }
Device Linear::device() const { return impl().weights().device(); }
std::int64_t Linear::weight_bytes() const { return impl().weights().bytes(); }

QuantizedActivation Linear::quantize(MatrixView x, Stream stream) const {
  return impl().quantize("Linear::quantize", x, stream);
}

void Linear::forward_into(MatrixView x, MatrixSpan out, Stream stream) const {
  impl().forward(kOp, GemmForm::dense, x, {}, out, stream);
}
void Linear::forward_into(const QuantizedActivation& x, MatrixSpan out, Stream stream) const {
  impl().forward(kOp, GemmForm::dense, x.view(), {}, out, stream);
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
