#include "nvfp4/activation.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bind.h"
#include "nvfp4/error.h"
#include "quantized.h"

namespace nvfp4::python {
namespace {

using namespace nb::literals;

DType dtype_from_name(const std::string& name) {
  for (const DType t : {DType::f32, DType::bf16, DType::f16})
    if (dtype_name(t) == name) return t;
  throw ValueError("intermediate = '" + name + "', must be f32, bf16 or f16",
                   ErrorCode::not_a_choice);
}

RmsNormOptions norm_options(float eps, const std::string& intermediate,
                            const std::optional<Input>& residual,
                            const std::optional<Output>& residual_out) {
  RmsNormOptions norm{.eps = eps};
  norm.intermediate = dtype_from_name(intermediate);
  if (residual) norm.residual = matrix_of("residual", *residual);
  if (residual_out) norm.residual_out = matrix_of("residual_out", *residual_out);
  return norm;
}

}  // namespace

void bind_activation(nb::module_& m) {
  m.def(
      "rms_norm_quantize_into",
      [](const Input& x, const Input& weight, const QuantizedOutput& out, const Options& options,
         float eps, const std::string& intermediate, const std::optional<Input>& residual,
         const std::optional<Output>& residual_out) {
        const MatrixView view = matrix_of("x", x);
        const std::span<const float> w = floats_of("weight", weight);
        const RmsNormOptions norm = norm_options(eps, intermediate, residual, residual_out);
        nb::gil_scoped_release unlocked;
        rms_norm_quantize_into(view, w, out.view, norm, options.get());
      },
      "x"_a, "weight"_a, "out"_a, "options"_a, "eps"_a = 1e-6f, "intermediate"_a = "f32",
      "residual"_a = nb::none(), "residual_out"_a = nb::none());
  m.def(
      "swiglu_quantize_into",
      [](const Input& gate_up, const QuantizedOutput& out, const Options& options, int interleave,
         float limit) {
        const MatrixView view = matrix_of("gate_up", gate_up);
        nb::gil_scoped_release unlocked;
        swiglu_quantize_into(view, out.view, {.interleave = interleave, .limit = limit},
                             options.get());
      },
      "gate_up"_a, "out"_a, "options"_a, "interleave"_a = 0,
      "limit"_a = std::numeric_limits<float>::infinity());
}

}  // namespace nvfp4::python
