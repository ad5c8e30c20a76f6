#include "nvfp4/gemm.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "bind.h"
#include "nvfp4/error.h"
#include "packed.h"
#include "quantized.h"

namespace nvfp4::python {
namespace {

using namespace nb::literals;

std::optional<GateUp> gate_up_of(std::optional<int> interleave) {
  return interleave ? std::optional(GateUp{*interleave}) : std::nullopt;
}

std::span<std::byte> memory_of(const Input& array) {
  const std::span<const std::uint8_t> bytes = bytes_of("data", array);
  return {const_cast<std::byte*>(reinterpret_cast<const std::byte*>(bytes.data())), bytes.size()};
}

PackedShape shape_of(std::int64_t groups, std::int64_t rows, std::int64_t cols,
                     const std::string& scope, std::optional<int> gate_up, Device device) {
  return {.groups = groups,
          .rows = rows,
          .cols = cols,
          .scope = scope_from_name(scope),
          .gate_up = gate_up_of(gate_up),
          .device = device};
}

Packed pack(const std::vector<const QuantizedInput*>& parts, std::int64_t groups,
            std::optional<int> gate_up, std::optional<Input> memory, std::uintptr_t stream) {
  std::vector<QuantizedView> views;
  for (const QuantizedInput* part : parts) views.push_back(part->view);
  PackOptions options{
      .groups = groups, .gate_up = gate_up_of(gate_up), .stream = stream_of(stream)};
  if (memory) {
    options.memory = memory_of(*memory);
    options.check_scales = device_of("data", *memory).type == DeviceType::cpu;
  }
  Packed packed{std::move(memory), {}};
  nb::gil_scoped_release unlocked;
  packed.weights = pack_weights(views, options);
  return packed;
}

void bind_packed(nb::module_& m) {
  nb::class_<Packed>(m, "Packed")
      .def(
          "__init__",
          [](Packed* self, Input data, std::int64_t groups, std::int64_t rows, std::int64_t cols,
             const std::string& scope, std::optional<int> gate_up) {
            const PackedShape shape =
                shape_of(groups, rows, cols, scope, gate_up, device_of("data", data));
            PackedWeights weights(shape, memory_of(data));
            new (self) Packed{std::move(data), std::move(weights)};
          },
          "data"_a, "groups"_a, "rows"_a, "cols"_a, "scope"_a = "tensor", "gate_up"_a = nb::none())
      .def_prop_ro("rows", [](const Packed& p) { return p.weights.rows(); })
      .def_prop_ro("cols", [](const Packed& p) { return p.weights.cols(); })
      .def_prop_ro("groups", [](const Packed& p) { return p.weights.groups(); })
      .def_prop_ro("nbytes", [](const Packed& p) { return p.weights.bytes(); })
      .def_prop_ro("scope",
                   [](const Packed& p) {
                     return p.weights.shape().scope == GlobalScope::tensor ? "tensor" : "vector";
                   })
      .def("data",
           [](nb::handle self) {
             const std::span<const std::byte> bytes =
                 nb::cast<const Packed&>(self).weights.memory();
             return nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>(bytes.data(),
                                                                            {bytes.size()}, self);
           })
      .def("__repr__", [](const Packed& p) { return to_string(p.weights); });
  m.def("pack_weights", &pack, "parts"_a, "groups"_a = 1, "gate_up"_a = nb::none(),
        "data"_a = nb::none(), "stream"_a = 0);
  m.def(
      "packed_bytes",
      [](std::int64_t groups, std::int64_t rows, std::int64_t cols, const std::string& scope,
         bool on_gpu) {
        const Device device = on_gpu ? Device::cuda() : Device{};
        return shape_of(groups, rows, cols, scope, {}, device).memory_bytes();
      },
      "groups"_a, "rows"_a, "cols"_a, "scope"_a, "on_gpu"_a);
  m.def(
      "unpack_weights_into",
      [](const Packed& p, std::int64_t group, const QuantizedOutput& out, std::uintptr_t stream) {
        nb::gil_scoped_release unlocked;
        copy(unpack_weights(p.weights, group, stream_of(stream)).view(), out.view,
             stream_of(stream));
        synchronize(p.weights.device(), stream_of(stream));
      },
      "w"_a, "group"_a, "out"_a, "stream"_a = 0);
}

template <class T, std::size_t kCount>
T from_name(const char* argument, std::string_view name,
            const std::array<std::string_view, kCount>& names) {
  for (std::size_t i = 0; i < kCount; ++i)
    if (names[i] == name) return static_cast<T>(i);
  throw ValueError(
      fmt::format("{} = '{}', must be one of {}", argument, name, fmt::join(names, ", ")),
      ErrorCode::not_a_choice);
}

constexpr std::array<std::string_view, 3> kDTypes = {"float32", "bfloat16", "float16"};
constexpr std::array<std::string_view, 4> kForms = {"dense", "grouped", "routed", "every_group"};
constexpr std::array<std::string_view, 3> kEpilogues = {"none", "swiglu", "swiglu_quantize"};
constexpr std::array<std::string_view, 2> kArithmetics = {"exact", "fp8"};
constexpr std::string_view kQuantized = "nvfp4";

/// Returns the name of a value, the inverse of from_name().
template <class T, std::size_t kCount>
std::string name_of(T value, const std::array<std::string_view, kCount>& names) {
  return std::string(names[static_cast<std::size_t>(value)]);
}

DType dtype_from_name(const char* argument, std::string_view name) {
  return from_name<DType>(argument, name, kDTypes);
}

GemmPlan make_plan(const Packed& w, std::int64_t rows, const std::string& x, const std::string& out,
                   const std::string& form, bool shared_x, const std::string& epilogue,
                   float swiglu_limit, bool batch_invariant, std::int64_t max_workspace_bytes,
                   const std::string& kernel, const std::string& backend, std::int64_t top_k,
                   bool autotune, const std::string& arithmetic) {
  GemmDescription d{.m = rows,
                    .form = from_name<GemmForm>("form", form, kForms),
                    .scheme = x == kQuantized ? Scheme::w4a4 : Scheme::w4a16,
                    .top_k = top_k,
                    .shared_x = shared_x,
                    .epilogue = from_name<Epilogue>("epilogue", epilogue, kEpilogues),
                    .swiglu_limit = swiglu_limit,
                    .batch_invariant = batch_invariant,
                    .arithmetic = from_name<Arithmetic>("arithmetic", arithmetic, kArithmetics),
                    .max_workspace_bytes = max_workspace_bytes,
                    .kernel = kernel,
                    .autotune = autotune,
                    .backend = backend};
  if (d.scheme == Scheme::w4a16) d.x = dtype_from_name("x_dtype", x);
  if (d.epilogue != Epilogue::swiglu_quantize) d.out = dtype_from_name("out_dtype", out);
  nb::gil_scoped_release unlocked;
  return plan_gemm(w.weights, d);
}

/// Returns an array that a kernel accesses through a pointer. It must be on the device of the
/// weights.
template <class Array, class Span>
Span on_device(const char* name, const Array& array, const Packed& w, Span span) {
  const Device given = device_of(name, array), expected = w.weights.device();
  if (!span.empty() && given != expected)
    throw DeviceError(fmt::format("{} lies on {}, must lie on {} as the weights do", name,
                                  device_name(given), device_name(expected)),
                      ErrorCode::other_device);
  return span;
}

/// The arguments of a call that do not depend on the types of input and result.
struct Extras {
  const std::optional<Input>&group_alpha, &bias, &row_ends, &row_starts, &expert_ids;

  void set(GemmArguments& a, const GemmPlan& plan, const Packed& w) const {
    if (group_alpha)
      a.group_alpha = on_device("alpha", *group_alpha, w, floats_of("alpha", group_alpha));
    if (bias) a.bias = on_device("bias", *bias, w, floats_of("bias", bias));
    if (row_ends) a.row_ends = on_device("row_ends", *row_ends, w, ints_of("row_ends", *row_ends));
    if (row_starts)
      a.row_starts = on_device("row_starts", *row_starts, w, ints_of("row_starts", *row_starts));
    if (!expert_ids) return;
    const auto ids = on_device("expert_ids", *expert_ids, w, ints_of("expert_ids", *expert_ids));
    const std::int64_t top_k = plan.description().top_k;
    a.routing = {.ids = ids.data(),
                 .id_stride = top_k,
                 .rows = static_cast<std::int64_t>(ids.size()) / std::max<std::int64_t>(top_k, 1),
                 .top_k = top_k};
  }
};

/// Binds a call for an input and a result that are dense or quantized. `options` have the global
/// scales of a quantized result.
template <class X, class Out, class View, class Span>
void bind_product(nb::module_& m, View view_of, Span span_of) {
  m.def(
      "gemm",
      [view_of, span_of](const GemmPlan& plan, const X& x, const Packed& w, const Out& out,
                         float alpha, const std::optional<Input>& group_alpha,
                         const std::optional<Input>& bias, const std::optional<Input>& row_ends,
                         const std::optional<Input>& row_starts,
                         const std::optional<Output>& workspace, std::uintptr_t stream,
                         const std::optional<Input>& expert_ids, const Options* options) {
        GemmArguments a{.x = view_of(x), .weights = w.weights, .out = span_of(out), .alpha = alpha};
        Extras{group_alpha, bias, row_ends, row_starts, expert_ids}.set(a, plan, w);
        if (options != nullptr) a.out_global = options->get().global;
        std::span<std::byte> space;
        if (workspace)
          space = std::as_writable_bytes(
              on_device("workspace", *workspace, w, bytes_of("workspace", *workspace)));
        nb::gil_scoped_release unlocked;
        gemm(plan, a, space, stream_of(stream));
      },
      "plan"_a, "x"_a, "w"_a, "out"_a, "alpha"_a = 1.0f, "group_alpha"_a = nb::none(),
      "bias"_a = nb::none(), "row_ends"_a = nb::none(), "row_starts"_a = nb::none(),
      "workspace"_a = nb::none(), "stream"_a = 0, "expert_ids"_a = nb::none(),
      "options"_a = nb::none());
}

void bind_plan(nb::module_& m) {
  nb::class_<GemmPlan>(m, "GemmPlan", "A plan for a GEMM. Its repr is one line.")
      .def_prop_ro("kernel", &GemmPlan::kernel, "Name of the kernel, as in plan_gemm(kernel=).")
      .def_prop_ro(
          "tile",
          [](const GemmPlan& p) {
            const GemmTileShape t = p.tile();
            return std::tuple{t.m, t.n, t.k, t.split_k};
          },
          "Sizes of a tile: rows of x, rows of W, elements of K; number of parts of K.")
      .def_prop_ro("workspace_bytes", &GemmPlan::workspace_bytes, "Bytes of gemm(workspace=).")
      .def_prop_ro(
          "rows", [](const GemmPlan& p) { return p.description().m; },
          "Largest number of rows of the result.")
      .def_prop_ro(
          "form", [](const GemmPlan& p) { return name_of(p.description().form, kForms); },
          "'dense', 'grouped', 'routed' or 'every_group'.")
      .def_prop_ro(
          "epilogue",
          [](const GemmPlan& p) { return name_of(p.description().epilogue, kEpilogues); },
          "'none', 'swiglu' or 'swiglu_quantize'.")
      .def_prop_ro(
          "x_dtype",
          [](const GemmPlan& p) {
            const GemmDescription& d = p.description();
            return d.scheme == Scheme::w4a4 ? std::string(kQuantized) : name_of(d.x, kDTypes);
          },
          "Dtype of x; 'nvfp4' for W4A4.")
      .def_prop_ro(
          "out_dtype",
          [](const GemmPlan& p) {
            const GemmDescription& d = p.description();
            return d.epilogue == Epilogue::swiglu_quantize ? std::string(kQuantized)
                                                           : name_of(d.out, kDTypes);
          },
          "Dtype of the result; 'nvfp4' if the epilogue quantizes it.")
      .def("__repr__", [](const GemmPlan& p) { return to_string(p); });
  m.def("plan_gemm", &make_plan, "w"_a, "rows"_a, "x_dtype"_a, "out_dtype"_a, "form"_a = "dense",
        "shared_x"_a = false, "epilogue"_a = "none",
        "swiglu_limit"_a = std::numeric_limits<float>::infinity(), "batch_invariant"_a = false,
        "max_workspace_bytes"_a = 0, "kernel"_a = "", "backend"_a = "", "top_k"_a = 0,
        "autotune"_a = false, "arithmetic"_a = "exact");
}

/// Runs a dense GEMM on a GPU. Arrays are addresses of contiguous memory, because an import by
/// DLPack takes longer than a launch. 0: no array.
void dense_gemm(const GemmPlan& plan, const Packed& w, std::int64_t rows, std::uintptr_t x,
                std::uintptr_t out, std::uintptr_t alpha, std::uintptr_t bias,
                std::uintptr_t workspace, std::uintptr_t stream) {
  const GemmDescription& d = plan.description();
  const Device device = w.weights.device();
  GemmArguments a{.x = MatrixView(at<void>(x), d.x, rows, d.k, kDense, device),
                  .weights = w.weights,
                  .out = MatrixSpan(at<void>(out), d.out, rows, d.n, kDense, device)};
  if (alpha != 0) a.group_alpha = {at<float>(alpha), 1};
  if (bias != 0) a.bias = {at<float>(bias), static_cast<std::size_t>(d.n)};
  const std::size_t bytes = workspace == 0 ? 0 : static_cast<std::size_t>(plan.workspace_bytes());
  nb::gil_scoped_release unlocked;
  gemm(plan, a, {at<std::byte>(workspace), bytes}, stream_of(stream));
}

}  // namespace

void bind_gemm(nb::module_& m) {
  bind_packed(m);
  bind_plan(m);
  const auto dense_x = [](const Input& x) { return matrix_of("x", x); };
  const auto quantized_x = [](const QuantizedInput& q) { return q.view; };
  const auto dense_out = [](const Output& out) { return matrix_of("out", out); };
  const auto quantized_out = [](const QuantizedOutput& q) { return q.view; };
  m.def("dense_gemm", &dense_gemm, "plan"_a, "w"_a, "rows"_a, "x"_a, "out"_a, "alpha"_a, "bias"_a,
        "workspace"_a, "stream"_a);
  bind_product<QuantizedInput, QuantizedOutput>(m, quantized_x, quantized_out);
  bind_product<QuantizedInput, Output>(m, quantized_x, dense_out);
  bind_product<Input, QuantizedOutput>(m, dense_x, quantized_out);
  bind_product<Input, Output>(m, dense_x, dense_out);
}

}  // namespace nvfp4::python
