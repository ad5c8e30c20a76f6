#include "nvfp4/quantize.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "backends/device_backend.h"
#include "bind.h"
#include "nvfp4/error.h"
#include "quantized.h"

namespace nvfp4::python {
namespace {

using namespace nb::literals;

template <class T>
void require_size(const char* name, std::span<T> s, std::int64_t expected) {
  if (static_cast<std::int64_t>(s.size()) != expected)
    throw ShapeError(fmt::format("{} has {} elements, must have {}", name, s.size(), expected));
}

template <class Quantized, class Array>
void bind_quantized(nb::module_& m, const char* name) {
  nb::class_<Quantized>(m, name).def(
      "__init__",
      [](Quantized* self, Array codes, Array scales, Array global_scale, std::int64_t rows,
         std::int64_t cols, const std::string& axis, int block, const std::string& layout,
         const std::string& scope) {
        const QuantizedShape shape{rows,
                                   cols,
                                   axis_from_name(axis),
                                   block,
                                   layout_from_name(layout),
                                   scope_from_name(scope)};
        if (rows < 0 || cols < 0 || block <= 0 || (rows != 0 && cols > kMaxMatrixElements / rows))
          throw ShapeError(
              fmt::format("no matrix has shape [{}, {}], block {}", rows, cols, block));
        const Device device = device_of("codes", codes);
        if (device_of("scales", scales) != device ||
            device_of("global_scale", global_scale) != device)
          throw ShapeError("codes, scales and global_scale must lie on one device");
        const auto code_span = bytes_of("codes", codes);
        const auto scale_span = bytes_of("scales", scales);
        const auto global_span = floats_of("global_scale", global_scale);
        require_size("codes", code_span, shape.code_bytes());
        require_size("scales", scale_span, shape.scale_bytes());
        require_size("global_scale", global_span, shape.global_count());
        new (self)
            Quantized{codes,
                      scales,
                      global_scale,
                      {shape, code_span.data(), scale_span.data(), global_span.data(), device}};
      },
      "codes"_a, "scales"_a, "global_scale"_a, "rows"_a, "cols"_a, "axis"_a = "rows",
      "block"_a = kBlock, "layout"_a = "linear", "scope"_a = "tensor");
}

void bind_operations(nb::module_& m) {
  m.def(
      "quantize_into",
      [](const Input& x, const QuantizedOutput& out, const Options& options) {
        const MatrixView view = matrix_of("x", x);
        nb::gil_scoped_release unlocked;
        quantize_into(view, out.view, options.get());
      },
      "x"_a, "out"_a, "options"_a);
  m.def(
      "quantize_values_into",
      [](std::uintptr_t x, const std::string& dtype, std::int64_t rows, std::int64_t cols,
         std::uintptr_t multiplier, std::uintptr_t out, int device, std::uintptr_t stream) {
        const DType type = dtype == "float32"   ? DType::f32
                           : dtype == "float16" ? DType::f16
                                                : DType::bf16;
        const Device gpu = Device::cuda(device);
        nb::gil_scoped_release unlocked;
        device_backend(gpu).quantize_values(
            MatrixView(at<void>(x), type, rows, cols, kDense, gpu), at<float>(multiplier),
            MatrixSpan(at<void>(out), DType::bf16, rows, cols, kDense, gpu), stream_of(stream));
      },
      "x"_a, "dtype"_a, "rows"_a, "cols"_a, "multiplier"_a, "out"_a, "device"_a, "stream"_a,
      "Writes codes times block scales as BF16. Arrays are addresses of contiguous memory.");
  m.def(
      "dequantize_into",
      [](const QuantizedInput& q, const Output& out, std::string_view backend,
         std::uintptr_t stream) {
        const MatrixSpan span = matrix_of("out", out);
        nb::gil_scoped_release unlocked;
        dequantize_into(q.view, span, backend, stream_of(stream));
      },
      "q"_a, "out"_a, "backend"_a = "", "stream"_a = 0);
  m.def(
      "amax_into",
      [](const Input& x, const Output& out, const std::string& scope, const std::string& axis,
         std::string_view backend, std::uintptr_t stream) {
        const MatrixView view = matrix_of("x", x);
        const GlobalScope s = scope_from_name(scope);
        const BlockAxis a = axis_from_name(axis);
        const std::span<float> values = floats_of("out", out);
        const QuantizedShape shape{.rows = view.rows, .cols = view.cols, .axis = a, .scope = s};
        require_size("out", values, shape.global_count());
        nb::gil_scoped_release unlocked;
        amax_into(view, values.data(), s, a, backend, stream_of(stream));
      },
      "x"_a, "out"_a, "scope"_a = "tensor", "axis"_a = "rows", "backend"_a = "", "stream"_a = 0);
  m.def(
      "global_scales_into",
      [](const Input& amaxes, const Output& pairs, const std::string& quantizer,
         std::uintptr_t stream) {
        const Device device = device_of("amax", amaxes);
        if (device_of("pairs", pairs) != device)
          throw ShapeError("amax and pairs must lie on one device");
        const std::span<const float> from = floats_of("amax", amaxes);
        const std::span<float> to = floats_of("pairs", pairs);
        require_size("pairs", to, 2 * static_cast<std::int64_t>(from.size()));
        const Quantizer q = quantizer_from_name(quantizer);
        nb::gil_scoped_release unlocked;
        global_scales_into(from.data(), reinterpret_cast<GlobalScale*>(to.data()),
                           static_cast<std::int64_t>(from.size()), q, device, stream_of(stream));
      },
      "amax"_a, "pairs"_a, "quantizer"_a = "max", "stream"_a = 0);
  m.def(
      "quantization_error",
      [](const Input& x, const QuantizedInput& q, std::string_view backend) {
        const MatrixView view = matrix_of("x", x);
        nb::gil_scoped_release unlocked;
        const QuantizationError e = quantization_error(view, q.view, backend);
        return std::tuple(e.squared_error, e.squared_norm);
      },
      "x"_a, "q"_a, "backend"_a = "");
  m.def(
      "relayout_scales",
      [](const Input& in, const std::string& in_layout, const Output& out,
         const std::string& out_layout, std::int64_t rows, std::int64_t blocks, std::size_t groups,
         std::uintptr_t stream) {
        const Device device = device_of("in", in);
        if (device_of("out", out) != device) throw ShapeError("in and out must lie on one device");
        const auto from = bytes_of("in", in);
        const auto to = bytes_of("out", out);
        const ScaleLayout from_layout = layout_from_name(in_layout);
        const ScaleLayout to_layout = layout_from_name(out_layout);
        const std::size_t from_size = from.size() / std::max<std::size_t>(groups, 1);
        const std::size_t to_size = to.size() / std::max<std::size_t>(groups, 1);
        nb::gil_scoped_release unlocked;
        for (std::size_t g = 0; g < groups; ++g)
          relayout_scales(from.subspan(g * from_size, from_size), from_layout,
                          to.subspan(g * to_size, to_size), to_layout, rows, blocks, device,
                          stream_of(stream));
      },
      "in_"_a, "in_layout"_a, "out"_a, "out_layout"_a, "rows"_a, "blocks"_a, "groups"_a = 1,
      "stream"_a = 0, "Copies block scales of `groups` consecutive matrices to another layout.");
}

}  // namespace

void bind_quantize(nb::module_& m) {
  bind_quantized<QuantizedInput, Input>(m, "QuantizedView");
  bind_quantized<QuantizedOutput, Output>(m, "QuantizedSpan");
  nb::class_<Options>(m, "Options")
      .def(nb::init<const std::string&, const std::string&, int, const std::string&,
                    const std::string&, std::optional<Input>, bool, std::optional<Input>,
                    std::optional<Input>, bool, std::string, std::uintptr_t>(),
           "quantizer"_a = "max", "axis"_a = "rows", "block"_a = kBlock, "layout"_a = "linear",
           "scope"_a = "tensor", "globals"_a = nb::none(), "divisor"_a = false,
           "weights"_a = nb::none(), "hessian"_a = nb::none(), "check_finite"_a = false,
           "backend"_a = "", "stream"_a = 0);
  m.def("method_names", &quantizer_names);
  m.def(
      "scale_bytes",
      [](const std::string& layout, std::int64_t rows, std::int64_t blocks) {
        return scale_bytes(layout_from_name(layout), rows, blocks);
      },
      "layout"_a, "rows"_a, "blocks"_a);
  m.def(
      "global_scale_from_amax",
      [](float amax, const std::string& quantizer) {
        return GlobalScale::from_amax(amax, quantizer_from_name(quantizer)).multiplier;
      },
      "amax"_a, "quantizer"_a = "max");
  bind_operations(m);
}

}  // namespace nvfp4::python
