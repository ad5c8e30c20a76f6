#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fragment_cases.h"
#include "layers/moe_cases.h"
#include "placed.h"

/// Layers on a GPU; skipped, with the reason, where they cannot run.
namespace nvfp4::test {

class OnHopper : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason = why_unavailable(kGpu);
    if (reason.empty() && cuda_devices()[0].architecture != "sm_90")
      reason = cuda_devices()[0].name + " is " + cuda_devices()[0].architecture + ", not sm_90";
    if (!reason.empty()) GTEST_SKIP() << "no GPU to run on: " << reason;
  }
};

inline LinearOptions on_gpu(LinearOptions options) {
  options.device = kGpu;
  return options;
}
inline MoeOptions on_gpu(MoeOptions options) {
  options.device = kGpu;
  return options;
}

/// A routing on the GPU, with ids of any 4- or 8-byte type.
template <class Id = std::int64_t>
struct PlacedRouting {
  Array<Id> ids;
  Array<float> weights;
  Routing routing;

  PlacedRouting(const std::vector<Id>& host_ids, const std::vector<float>& host_weights,
                std::int64_t top_k)
      : ids(host_ids, kGpu), weights(host_weights, kGpu) {
    routing = {.ids = ids.data(),
               .id_type = sizeof(Id) == 4 ? IndexType::i32 : IndexType::i64,
               .id_stride = top_k,
               .weights = weights.data(),
               .weight_stride = top_k,
               .rows = static_cast<std::int64_t>(host_ids.size()) / top_k,
               .top_k = top_k};
  }
  explicit PlacedRouting(const MoeCase& c) : PlacedRouting(c.ids, c.weights, c.top_k) {}
};

/// The layer's result for an x on the GPU, brought to the CPU; poisoned before.
template <class X>
Matrix run_on_gpu(const Moe& moe, const X& x, const Routing& routing, DType out = DType::f32) {
  Placed y = poisoned(out, routing.rows, moe.hidden(), moe.hidden(), kGpu);
  moe.forward_into(x, routing, y.span);
  synchronize(kGpu);
  return to_device(y.span, {});
}
template <class X>
Matrix run_on_gpu(const Linear& linear, const X& x, std::int64_t rows, DType out = DType::f32) {
  Placed y = poisoned(out, rows, linear.outputs(), linear.outputs(), kGpu);
  linear.forward_into(x, y.span);
  synchronize(kGpu);
  return to_device(y.span, {});
}

/// One after the other; `columns` of all must agree.
inline QuantizedMatrix stacked(const QuantizedView& a, const QuantizedView& b) {
  const std::vector<QuantizedView> parts = {a, b};
  return unpack_weights(pack_weights(parts));
}

/// Rows that differ by more than `limit` of their norm.
inline std::int64_t rows_apart(const Matrix& got, const Matrix& want, double limit) {
  std::int64_t apart = 0;
  for (std::int64_t r = 0; r < want.rows(); ++r) {
    double error = 0, norm = 0;
    for (std::int64_t c = 0; c < want.cols(); ++c) {
      const double a = static_cast<double>(got.view().at(r, c)),
                   b = static_cast<double>(want.view().at(r, c));
      error += (a - b) * (a - b);
      norm += b * b;
    }
    apart += !(error <= limit * limit * norm);
  }
  return apart;
}

}  // namespace nvfp4::test
