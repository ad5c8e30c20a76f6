#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <vector>

#include "bind.h"
#include "layers/moe_layer.h"
#include "nvfp4/error.h"
#include "packed.h"

namespace nvfp4::python {
namespace {

using namespace nb::literals;

MoeLayer make_moe(const Packed& gate_up, const Packed& down, bool quantized,
                  std::optional<float> input_scale, const std::vector<float>& down_scales,
                  float swiglu_limit, const Input& like) {
  MoeOptions options{.scheme = quantized ? Scheme::w4a4 : Scheme::w4a16,
                     .swiglu_limit = swiglu_limit,
                     .intermediate = matrix_of("like", like).dtype,
                     .device = gate_up.weights.device()};
  std::optional<GlobalScale> scale;
  if (input_scale) scale = GlobalScale::from_multiplier(*input_scale);
  std::vector<GlobalScale> of_down;
  for (const float s : down_scales) of_down.push_back(GlobalScale::from_multiplier(s));
  return MoeLayer("moe", gate_up.weights, down.weights, scale, std::move(of_down), options);
}

/// Returns the routing of `ids` [T, top_k], int32, and float32 weights of the same shape.
Routing routing_of(const Input& ids, const Input& weights, std::int64_t top_k) {
  const std::span<const std::int32_t> all = ints_of("ids", ids);
  const std::span<const float> factors = floats_of("weights", weights);
  if (top_k < 1 || std::ssize(all) % top_k != 0 || all.size() != factors.size())
    throw ShapeError("ids and weights: must have the shape [T, top_k]");
  return {.ids = all.data(),
          .id_stride = top_k,
          .weights = factors.data(),
          .weight_stride = top_k,
          .rows = std::ssize(all) / top_k,
          .top_k = top_k};
}

}  // namespace

void bind_moe(nb::module_& m) {
  nb::class_<MoeLayer>(m, "Moe", "Routed experts with packed weights.")
      .def(
          "__init__",
          [](MoeLayer* self, const Packed& gate_up, const Packed& down, bool quantized,
             std::optional<float> input_scale, const std::vector<float>& down_scales,
             float swiglu_limit, const Input& like) {
            new (self) MoeLayer(
                make_moe(gate_up, down, quantized, input_scale, down_scales, swiglu_limit, like));
          },
          "gate_up"_a, "down"_a, "quantized"_a, "input_scale"_a, "down_scales"_a, "swiglu_limit"_a,
          "like"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def(
          "memory",
          [](const MoeLayer& self, const Input& x, std::int64_t top_k) {
            const MatrixView view = matrix_of("x", x);
            return std::pair(self.memory_bytes(view.rows, top_k, view.dtype),
                             self.workspace_bytes(view.rows, top_k));
          },
          "x"_a, "top_k"_a, "Bytes of `memory` and of `workspace` that run() needs on a GPU.")
      .def(
          "run",
          [](const MoeLayer& self, const Input& x, const Input& ids, const Input& weights,
             std::int64_t top_k, const Output& out) {
            const MatrixView view = matrix_of("x", x);
            const Routing routing = routing_of(ids, weights, top_k);
            const MatrixSpan y = matrix_of("out", out);
            nb::gil_scoped_release unlocked;
            self.forward(view, routing, y, {});
          },
          "x"_a, "ids"_a, "weights"_a, "top_k"_a, "out"_a)
      .def(
          "run_on_gpu",
          [](const MoeLayer& self, std::int64_t tokens, std::int64_t top_k, std::uintptr_t x,
             std::uintptr_t ids, std::uintptr_t weights, std::uintptr_t out, std::uintptr_t memory,
             std::size_t memory_bytes, std::uintptr_t workspace, std::size_t workspace_bytes,
             std::uintptr_t stream) {
            const MoeOptions& o = self.options();
            const std::int64_t k = self.routed().hidden();
            const MatrixView view(at<void>(x), o.intermediate, tokens, k, kDense, o.device);
            const MatrixSpan y(at<void>(out), o.intermediate, tokens, k, kDense, o.device);
            const Routing routing{.ids = at<void>(ids),
                                  .id_stride = top_k,
                                  .weights = at<float>(weights),
                                  .weight_stride = top_k,
                                  .rows = tokens,
                                  .top_k = top_k};
            const MoeLayer::Memory given{{at<std::byte>(memory), memory_bytes},
                                         {at<std::byte>(workspace), workspace_bytes}};
            nb::gil_scoped_release unlocked;
            self.forward(view, routing, y, stream_of(stream), given);
          },
          "tokens"_a, "top_k"_a, "x"_a, "ids"_a, "weights"_a, "out"_a, "memory"_a, "memory_bytes"_a,
          "workspace"_a, "workspace_bytes"_a, "stream"_a,
          "Arrays are addresses of contiguous memory; x and out have the dtype of `like`.");
}

}  // namespace nvfp4::python
