#include "nvfp4/tensor_core_gemm.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <string>
#include <utility>

#include "bind.h"
#include "nvfp4/error.h"
#include "quantized.h"

namespace nvfp4::python {
namespace {

using namespace nb::literals;

/// FragmentWeights in arrays of the caller, which they keep alive. Only pack() writes to them,
/// which JAX's arrays, read only, are not for.
struct Fragments {
  Input tiles, globals;
  FragmentWeights weights;

  Fragments(Input tiles_, Input globals_, std::int64_t groups, std::int64_t rows, std::int64_t cols,
            const std::string& scope)
      : tiles(std::move(tiles_)), globals(std::move(globals_)) {
    const Device device = device_of("tiles", tiles);
    if (device_of("global_scale", globals) != device)
      throw ShapeError("tiles and global_scale must lie on one device");
    const auto bytes = bytes_of("tiles", tiles);
    const auto floats = floats_of("global_scale", globals);
    weights = FragmentWeights(groups, rows, cols, scope_from_name(scope), device,
                              {const_cast<std::uint8_t*>(bytes.data()), bytes.size()},
                              {const_cast<float*>(floats.data()), floats.size()});
  }
};

std::int64_t tile_bytes(std::int64_t rows, std::int64_t cols) {
  return ceil_div(rows, FragmentWeights::kTileRows) * ceil_div(cols, FragmentWeights::kTileCols) *
         FragmentWeights::kTileBytes;
}

/// An array that a kernel reads or writes through a bare pointer: on the device of the weights.
template <class Span>
Span on_device(const char* name, Device given, Device expected, Span span) {
  if (!span.empty() && given != expected)
    throw DeviceError(fmt::format("{} lies on {}, must lie on {} as the weights do", name,
                                  device_name(given), device_name(expected)));
  return span;
}

struct Extras {
  std::optional<Input> group_alpha, bias;
  std::optional<Output> workspace;
};

TensorCoreGemmOptions options_of(const Fragments& w, float alpha, const Extras& extras,
                                 bool batch_invariant, std::uintptr_t stream) {
  const Device device = w.weights.device();
  TensorCoreGemmOptions options{
      .alpha = alpha, .batch_invariant = batch_invariant, .stream = stream_of(stream)};
  if (extras.group_alpha)
    options.group_alpha = on_device("alpha", device_of("alpha", *extras.group_alpha), device,
                                    floats_of("alpha", extras.group_alpha));
  if (extras.bias)
    options.bias =
        on_device("bias", device_of("bias", *extras.bias), device, floats_of("bias", extras.bias));
  if (extras.workspace)
    options.workspace =
        std::as_writable_bytes(on_device("workspace", device_of("workspace", *extras.workspace),
                                         device, bytes_of("workspace", *extras.workspace)));
  return options;
}

/// For an input in full precision and for a quantized one.
template <class X, class View>
void bind_products(nb::module_& m, View view_of) {
  m.def(
      "fragment_gemm_into",
      [view_of](const X& x, const Fragments& w, const Output& out, float alpha,
                std::optional<Input> group_alpha, std::optional<Input> bias, bool batch_invariant,
                std::optional<Output> workspace, std::uintptr_t stream) {
        const auto view = view_of(x);
        const MatrixSpan span = matrix_of("out", out);
        const Extras extras{std::move(group_alpha), std::move(bias), std::move(workspace)};
        const auto options = options_of(w, alpha, extras, batch_invariant, stream);
        nb::gil_scoped_release unlocked;
        gemm_into(view, w.weights, span, options);
      },
      "x"_a, "w"_a, "out"_a, "alpha"_a = 1.0f, "group_alpha"_a = nb::none(), "bias"_a = nb::none(),
      "batch_invariant"_a = false, "workspace"_a = nb::none(), "stream"_a = 0);
  m.def(
      "fragment_grouped_gemm_into",
      [view_of](const X& x, const Fragments& w, const Input& starts, const Input& ends,
                const Output& out, std::optional<Input> group_alpha, std::optional<Input> bias,
                bool batch_invariant, std::optional<Output> workspace, std::uintptr_t stream) {
        const auto view = view_of(x);
        const MatrixSpan span = matrix_of("out", out);
        const Device device = w.weights.device();
        const auto from =
            on_device("starts", device_of("starts", starts), device, ints_of("starts", starts));
        const auto to = on_device("ends", device_of("ends", ends), device, ints_of("ends", ends));
        const Extras extras{std::move(group_alpha), std::move(bias), std::move(workspace)};
        const auto options = options_of(w, 1.0f, extras, batch_invariant, stream);
        nb::gil_scoped_release unlocked;
        grouped_gemm_into(view, w.weights, from, to, span, options);
      },
      "x"_a, "w"_a, "starts"_a, "ends"_a, "out"_a, "group_alpha"_a = nb::none(),
      "bias"_a = nb::none(), "batch_invariant"_a = false, "workspace"_a = nb::none(),
      "stream"_a = 0);
}

}  // namespace

void bind_tensor_core_gemm(nb::module_& m) {
  nb::class_<Fragments>(m, "Fragments")
      .def(nb::init<Input, Input, std::int64_t, std::int64_t, std::int64_t, const std::string&>(),
           "tiles"_a, "global_scale"_a, "groups"_a, "rows"_a, "cols"_a, "scope"_a = "tensor")
      .def(
          "pack",
          [](Fragments& to, const QuantizedInput& w, std::int64_t group, std::uintptr_t stream) {
            nb::gil_scoped_release unlocked;
            pack_fragments_into(w.view, to.weights, group, stream_of(stream));
          },
          "w"_a, "group"_a = 0, "stream"_a = 0);
  m.def("fragment_bytes", &tile_bytes, "rows"_a, "cols"_a, "Of one matrix [rows, cols].");
  bind_products<QuantizedInput>(m, [](const QuantizedInput& q) { return q.view; });
  bind_products<Input>(m, [](const Input& x) { return matrix_of("x", x); });
}

}  // namespace nvfp4::python
