#include "nvfp4/moe.h"

#include "core/require.h"
#include "layers/moe_layer.h"

namespace nvfp4 {

struct Moe::Impl : MoeLayer {
  using MoeLayer::MoeLayer;
};

namespace {
constexpr const char* kOp = "Moe";
}  // namespace

Moe::Moe(std::span<const ExpertWeights> routed, std::span<const ExpertWeights> shared,
         const MoeOptions& options)
    : impl_(std::make_shared<Impl>(kOp, routed, shared, options)) {}

const Moe::Impl& Moe::impl() const {
  require<ValueError>(impl_ != nullptr, "Moe: the layer is empty");
  return *impl_;
}

std::int64_t Moe::experts() const { return impl().routed().count(); }
std::int64_t Moe::shared_experts() const { return impl().shared_count(); }
std::int64_t Moe::hidden() const { return impl().routed().hidden(); }
std::int64_t Moe::intermediate() const { return impl().routed().intermediate(); }
Scheme Moe::scheme() const { return impl().options().scheme; }
Device Moe::device() const { return impl().options().device; }
std::int64_t Moe::weight_bytes() const { return impl().weight_bytes(); }

QuantizedActivation Moe::quantize(MatrixView x, Stream stream) const {
  return impl().quantize("Moe::quantize", x, stream);
}

void Moe::forward_into(MatrixView x, const Routing& routing, MatrixSpan out, Stream stream) const {
  impl().forward(x, routing, out, stream);
}
void Moe::forward_into(const QuantizedActivation& x, const Routing& routing, MatrixSpan out,
                       Stream stream) const {
  impl().forward(x.view(), routing, out, stream);
}

}  // namespace nvfp4
