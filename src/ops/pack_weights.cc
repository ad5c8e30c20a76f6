#include <algorithm>
#include <cstring>
#include <ostream>
#include <utility>

#include "backends/gemm_backend.h"
#include "core/parallel_for.h"
#include "core/require.h"
#include "nvfp4/gemm.h"
#include "ops/measure.h"
#include "ops/options.h"
#include "ops/weight_packer.h"

namespace nvfp4 {
namespace {

constexpr const char* kOp = "pack_weights";

/// Quantizes dense weights on the CPU directly to panels and writes their global scales. Returns
/// false if the whole matrix is needed: for errors that name an element, for blocks down the
/// columns, and for Hessians.
bool encode_panels(const MatrixView& w, const QuantizeOptions& options, const QuantizedShape& shape,
                   std::uint8_t* panels, float* globals) {
  const Backend& backend = find_backend(options.backend);
  if (backend.pack == nullptr || shape.axis != BlockAxis::rows || shape.block != kBlock ||
      options.check_finite || is_given(options.hessian) || w.device.type != DeviceType::cpu)
    return false;
  std::vector<float> divisors(static_cast<std::size_t>(shape.global_count()));
  const auto set_global = [&](std::int64_t i, const GlobalScale& g) {
    divisors[static_cast<std::size_t>(i)] = g.divisor;
    globals[i] = g.multiplier;
  };
  for (std::size_t i = 0; i < options.global.size(); ++i)
    set_global(static_cast<std::int64_t>(i), options.global[i]);
  const bool measured = options.global.empty();
  const bool each_row = shape.scope == GlobalScope::vector;
  if (measured && !each_row)
    set_global(0, GlobalScale::from_amax(matrix_amax(backend, w).amax, quantizer_of(options)));
  std::vector<float> weights;
  if (!options.weights.empty()) weights = normalized_weights(options.weights);
  const EncodeJob job{.x = w,
                      .out = {shape, nullptr, nullptr, nullptr},
                      .quantizer = quantizer_of(options),
                      .divisors = divisors.data(),
                      .weights = weights.empty() ? nullptr : weights.data(),
                      .panels = panels};
  parallel_for(ceil_div(shape.rows, kPanelRows), [&](std::int64_t p) {
    const std::int64_t n0 = p * kPanelRows, n1 = std::min(shape.rows, n0 + kPanelRows);
    for (std::int64_t n = n0; measured && each_row && n < n1; ++n)
      set_global(n, GlobalScale::from_amax(backend.amax(w, n, n + 1).amax, quantizer_of(options)));
    if (shape.blocks() > 0) backend.pack(job, {n0, n1, 0, shape.blocks()});
  });
  return true;
}

/// Reports whether all vectors have one global scale. The weights are on the CPU.
bool have_one_global(std::span<const PackPart> parts) {
  return std::ranges::all_of(parts, [&](const PackPart& p) {
    return p.w.shape.scope == GlobalScope::tensor &&
           float_bits(*p.w.global_scale) == float_bits(*parts[0].w.global_scale);
  });
}

/// Returns the vectors of the parts that belong to each group.
std::vector<std::vector<PackPart>> split(std::span<const QuantizedView> parts, std::int64_t groups,
                                         std::int64_t n) {
  std::vector<std::vector<PackPart>> list(static_cast<std::size_t>(groups));
  std::int64_t row = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const std::int64_t vectors = parts[p].shape.vectors();
    require<ShapeError>(row % n + vectors <= n || (row % n == 0 && vectors % n == 0),
                        "{}: part {} has outputs {} … {}, must not cross the end of a group of {}",
                        kOp, p, row, row + vectors - 1, n);
    for (std::int64_t first = 0; first < vectors;) {
      const std::int64_t count = std::min(n - row % n, vectors - first);
      list[static_cast<std::size_t>(row / n)].push_back({parts[p], first, count});
      first += count;
      row += count;
    }
  }
  return list;
}

Device device_of(const PackOptions& options, Device given) {
  return options.device.value_or(given);
}

}  // namespace

PackedWeights pack_weights(QuantizedView w, const PackOptions& options) {
  return pack_weights(std::span(&w, 1), options);
}

PackedWeights pack_weights(std::span<const QuantizedView> parts, const PackOptions& options) {
  require<ShapeError>(!parts.empty(), "{}: no parts, must be at least one", kOp);
  std::int64_t rows = 0;
  for (const QuantizedView& w : parts) {
    require_part(kOp, w);
    require_on(kOp, "w", w.device, parts[0].device);
    require<ShapeError>(w.shape.depth() == parts[0].shape.depth(),
                        "{}: a part has K = {}, must be {} as the first", kOp, w.shape.depth(),
                        parts[0].shape.depth());
    rows += w.shape.vectors();
  }
  require<ShapeError>(options.groups >= 1 && rows % options.groups == 0,
                      "{}: groups = {}, must be at least 1 and divide the {} outputs of w", kOp,
                      options.groups, rows);
  require<ShapeError>(rows >= 1, "{}: w has no outputs, N must be at least 1", kOp);
  const std::int64_t n = rows / options.groups;
  const auto groups = split(parts, options.groups, n);
  const bool on_cpu = parts[0].device.type == DeviceType::cpu;
  const bool one_global = std::ranges::all_of(groups, [&](const std::vector<PackPart>& g) {
    return on_cpu ? have_one_global(g) : g.size() == 1 && g[0].w.shape.scope == GlobalScope::tensor;
  });
  WeightPacker packer(kOp,
                      {.groups = options.groups,
                       .rows = n,
                       .cols = parts[0].shape.depth(),
                       .scope = one_global ? GlobalScope::tensor : GlobalScope::vector,
                       .gate_up = options.gate_up,
                       .device = device_of(options, parts[0].device)},
                      options);
  for (std::size_t g = 0; g < groups.size(); ++g)
    packer.add(static_cast<std::int64_t>(g), std::span<const PackPart>(groups[g]));
  return packer.finish();
}

PackedWeights pack_weights(MatrixView w, const QuantizeOptions& quantize_options,
                           const PackOptions& options) {
  const QuantizedShape shape = quantized_shape(kOp, w, quantize_options);
  const Device device = device_of(options, w.device);
  const bool whole_panels =
      options.groups >= 1 && shape.vectors() % options.groups == 0 &&
      (options.groups == 1 || shape.vectors() / options.groups % kPanelRows == 0);
  if (device.type == DeviceType::cpu && whole_panels && shape.vectors() > 0) {
    const PackedShape packed_shape{.groups = options.groups,
                                   .rows = shape.vectors() / options.groups,
                                   .cols = shape.depth(),
                                   .scope = shape.scope,
                                   .gate_up = options.gate_up,
                                   .device = device};
    auto packed = options.memory.empty()
                      ? std::make_shared<PackedWeights::Impl>(kOp, packed_shape)
                      : std::make_shared<PackedWeights::Impl>(kOp, packed_shape, options.memory);
    if (encode_panels(w, quantize_options, shape, packed->data(), packed->global_scale())) {
      if (shape.scope == GlobalScope::tensor)
        std::fill_n(packed->global_scale(), packed->groups(), *packed->global_scale());
      return PackedWeights(std::move(packed));
    }
  }
  return pack_weights(quantize(w, quantize_options).view(), options);
}

QuantizedMatrix unpack_weights(const PackedWeights& w, std::int64_t group, Stream stream) {
  if (w.empty()) return {};
  const PackedStorage& packed = w.impl();
  require<ShapeError>(group >= 0 && group < packed.groups(),
                      "unpack_weights: group = {}, must be one of {}", group, packed.groups());
  QuantizedMatrix q({.rows = packed.rows(), .cols = packed.cols(), .scope = packed.scope()},
                    packed.device());
  gemm_backend(packed.device())
      .unpack({.packed = &packed, .group = group, .w = q.span(), .stream = stream});
  return q;
}

std::string to_string(const PackedWeights& w) {
  if (w.empty()) return "PackedWeights()";
  return fmt::format(
      "PackedWeights(groups={}, rows={}, cols={}, {}{}, {})", w.groups(), w.rows(), w.cols(),
      w.impl().layout() == WeightLayout::interleaved_16x4 ? "interleaved_16x4" : "fragments_64x64",
      w.impl().gate_up() ? ", gate and up" : "", device_name(w.device()));
}
std::ostream& operator<<(std::ostream& out, const PackedWeights& w) { return out << to_string(w); }

void require_part(const char* op, const QuantizedView& w) {
  require_quantized(op, "w", w);
  require<ShapeError>(w.shape.block == kBlock, "{}: w has blocks of {}, must be 16", op,
                      w.shape.block);
  require<ShapeError>(w.global_scale != nullptr, "{}: w.global_scale is null", op);
}

void WeightPacker::add(std::int64_t group, const MatrixView& w, const QuantizeOptions& options,
                       const std::string& name) {
  const QuantizedShape shape = quantized_shape(op_, w, options);
  if (!to_gpu()) {
    std::uint8_t* const panels = packed_->data() + group * packed_->group_bytes();
    float* const globals = packed_->global_scale() + group * packed_->group_globals();
    if ((shape.scope == packed_->scope() || shape.scope == GlobalScope::tensor) &&
        encode_panels(w, options, shape, panels, globals)) {
      if (shape.scope != packed_->scope()) std::fill_n(globals, packed_->group_globals(), *globals);
      return;
    }
  }
  const QuantizedMatrix q = quantize(w, options);
  const PackPart part{q.view(), 0, q.shape().vectors()};
  add(group, std::span(&part, 1), name);
}

}  // namespace nvfp4
