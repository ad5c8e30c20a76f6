#include <utility>

#include "core/require.h"
#include "layers/linear_layer.h"

namespace nvfp4 {

struct GroupedLinear::Impl : LinearLayer {
  using LinearLayer::LinearLayer;
};

namespace {
constexpr const char* kOp = "GroupedLinear";
}  // namespace

GroupedLinear::GroupedLinear(std::span<const WeightView> groups, const LinearOptions& options) {
  require<ShapeError>(!groups.empty(), "{}: no groups, must be at least one", kOp);
  std::vector<std::vector<WeightView>> list;
  for (const WeightView& w : groups) list.push_back({w});
  impl_ = std::make_shared<Impl>(kOp, list, options);
}

const GroupedLinear::Impl& GroupedLinear::impl() const {
  require<ValueError>(impl_ != nullptr, "GroupedLinear: the layer is empty");
  return *impl_;
}

std::int64_t GroupedLinear::groups() const { return impl().weights().groups(); }
std::int64_t GroupedLinear::inputs() const { return impl().weights().cols(); }
std::int64_t GroupedLinear::outputs() const { return impl().weights().rows(); }
Scheme GroupedLinear::scheme() const { return impl().scheme(); }
Device GroupedLinear::device() const { return impl().weights().device(); }
std::int64_t GroupedLinear::weight_bytes() const { return impl().weights().bytes(); }

QuantizedActivation GroupedLinear::quantize(MatrixView x, Stream stream) const {
  return impl().quantize("GroupedLinear::quantize", x, stream);
}

void GroupedLinear::forward_into(MatrixView x, MatrixSpan out, Stream stream) const {
  impl().forward(kOp, GemmForm::every_group, x, {}, out, stream);
}
void GroupedLinear::forward_into(const QuantizedActivation& x, MatrixSpan out,
                                 Stream stream) const {
  impl().forward(kOp, GemmForm::every_group, x.view(), {}, out, stream);
}

void GroupedLinear::forward_rows_into(MatrixView x, std::span<const std::int32_t> row_ends,
                                      MatrixSpan out, Stream stream) const {
  impl().forward(kOp, GemmForm::grouped, x, row_ends, out, stream);
}
void GroupedLinear::forward_rows_into(const QuantizedActivation& x,
                                      std::span<const std::int32_t> row_ends, MatrixSpan out,
                                      Stream stream) const {
  impl().forward(kOp, GemmForm::grouped, x.view(), row_ends, out, stream);
}

}  // namespace nvfp4
