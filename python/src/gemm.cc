#include "nvfp4/gemm.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "bind.h"
#include "nvfp4/error.h"
#include "quantized.h"

namespace nvfp4::python {
namespace {

using namespace nb::literals;

/// The weights of every group; gemm.h wants them in one array.
struct PackedGroups {
  PackedGroups() = default;
  PackedGroups(PackedGroups&&) = default;
  PackedGroups(const PackedGroups&) = delete;
  std::vector<PackedWeights> weights;
};

std::vector<QuantizedView> views_of(const std::vector<const QuantizedInput*>& parts) {
  std::vector<QuantizedView> views;
  for (const QuantizedInput* part : parts) views.push_back(part->view);
  return views;
}

PackedWeights pack(const std::vector<const QuantizedInput*>& parts) {
  const std::vector<QuantizedView> views = views_of(parts);
  nb::gil_scoped_release unlocked;
  return pack_weights(views);
}

PackedGroups pack_groups(const std::vector<const QuantizedInput*>& groups) {
  const std::vector<QuantizedView> views = views_of(groups);
  nb::gil_scoped_release unlocked;
  PackedGroups packed;
  for (const QuantizedView& view : views) packed.weights.push_back(pack_weights(view));
  return packed;
}

void bind_packed(nb::module_& m) {
  nb::class_<PackedWeights>(m, "PackedWeights",
                            "NVFP4 weights [N, K] in the order in which products read them.")
      .def_prop_ro("rows", &PackedWeights::rows, "N")
      .def_prop_ro("cols", &PackedWeights::cols, "K")
      .def_prop_ro("nbytes", &PackedWeights::bytes, "Of codes and scales.")
      .def("__repr__", [](const PackedWeights& w) {
        return nb::str(fmt::format("PackedWeights(rows={}, cols={})", w.rows(), w.cols()).c_str());
      });
  nb::class_<PackedGroups>(m, "PackedGroups", "The packed weights of every group (expert).")
      .def("__len__", [](const PackedGroups& g) { return g.weights.size(); })
      .def_prop_ro(
          "rows", [](const PackedGroups& g) { return g.weights.empty() ? 0 : g.weights[0].rows(); })
      .def_prop_ro("cols", [](const PackedGroups& g) {
        return g.weights.empty() ? 0 : g.weights[0].cols();
      });
  m.def("pack_weights", &pack, "parts"_a);
  m.def("pack_groups", &pack_groups, "groups"_a);
}

/// For an input in full precision and for a quantized one.
template <class X, class View>
void bind_products(nb::module_& m, View view_of) {
  m.def(
      "gemm_into",
      [view_of](const X& x, const PackedWeights& w, const Output& out, float alpha,
                const std::optional<Input>& bias, bool batch_invariant, std::string_view backend) {
        const auto view = view_of(x);
        const MatrixSpan span = matrix_of("out", out);
        const GemmOptions options{.alpha = alpha,
                                  .bias = floats_of("bias", bias),
                                  .batch_invariant = batch_invariant,
                                  .backend = backend};
        nb::gil_scoped_release unlocked;
        gemm_into(view, w, span, options);
      },
      "x"_a, "w"_a, "out"_a, "alpha"_a = 1.0f, "bias"_a = nb::none(), "batch_invariant"_a = false,
      "backend"_a = "");
  m.def(
      "grouped_gemm_into",
      [view_of](const X& x, const PackedGroups& w, const std::vector<std::int64_t>& row_ends,
                const Output& out, const std::optional<Input>& alpha,
                const std::optional<Input>& bias, bool batch_invariant, std::string_view backend) {
        const auto view = view_of(x);
        const MatrixSpan span = matrix_of("out", out);
        const GroupedGemmOptions options{.alpha = floats_of("alpha", alpha),
                                         .bias = floats_of("bias", bias),
                                         .batch_invariant = batch_invariant,
                                         .backend = backend};
        nb::gil_scoped_release unlocked;
        grouped_gemm_into(view, w.weights, row_ends, span, options);
      },
      "x"_a, "w"_a, "row_ends"_a, "out"_a, "alpha"_a = nb::none(), "bias"_a = nb::none(),
      "batch_invariant"_a = false, "backend"_a = "");
}

}  // namespace

void bind_gemm(nb::module_& m) {
  bind_packed(m);
  bind_products<QuantizedInput>(m, [](const QuantizedInput& q) { return q.view; });
  bind_products<Input>(m, [](const Input& x) { return matrix_of("x", x); });
}

}  // namespace nvfp4::python
