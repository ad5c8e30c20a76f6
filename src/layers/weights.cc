#include "layers/weights.h"

#include <algorithm>

#include "core/require.h"
#include "core/rows_of.h"
#include "ops/options.h"
#include "ops/weight_packer.h"

namespace nvfp4 {
namespace {

std::string described(const WeightView& w) { return w.name.empty() ? "w" : w.name; }

}  // namespace

void require_layer_device(const char* op, Device device, bool autotune) {
  require<UnsupportedError>(!autotune || device.type != DeviceType::cpu,
                            "{}: autotune = true, must be false on {}: there is one kernel for a "
                            "GEMM",
                            op, device_name(device));
  if (device.type == DeviceType::cpu) return;
  const std::string reason = why_unavailable(device);
  require<UnsupportedError>(reason.empty(), ErrorCode::device_unavailable, "{}: device = {}: {}",
                            op, device_name(device), reason);
  plan_gemm({.m = 1, .n = 64, .k = 64}, device);  // throws if the device has no GEMMs
}

void require_weight(const char* op, const WeightView& w) {
  if (w.is_quantized()) {
    require_quantized(op, described(w).c_str(), w.quantized);
    require<ShapeError>(w.quantized.shape.axis == w.axis,
                        "{}: {}.axis is not that of its quantized.shape", op, described(w));
  } else {
    require_matrix(op, described(w).c_str(), w.dense);
  }
  require<ShapeError>(w.outputs() >= 1 && w.inputs() >= 0 && w.inputs() % kBlock == 0,
                      ErrorCode::partial_block,
                      "{}: {} has [N, K] = [{}, {}], N must be at least 1 and K a multiple of 16",
                      op, described(w), w.outputs(), w.inputs());
}

void require_expert(const char* op, const ExpertWeights& e, std::int64_t k, std::int64_t i) {
  const auto is = [&](const char* what, const WeightView& w, std::int64_t n, std::int64_t depth) {
    require_weight(op, w);
    require<ShapeError>(w.outputs() == n && w.inputs() == depth,
                        "{}: {} has [N, K] = [{}, {}], must be [{}, {}] as its siblings", op,
                        w.name.empty() ? what : w.name, w.outputs(), w.inputs(), n, depth);
  };
  is("gate", e.gate, i, k);
  is("up", e.up, i, k);
  is("down", e.down, k, i);
}

namespace {

/// Returns the names of the parts of a group for messages. Throws unless all parts have one K.
std::string checked_names(const char* op, const std::vector<WeightView>& parts) {
  require<ShapeError>(!parts.empty(), "{}: no weights, must be at least one", op);
  std::string names;
  for (const WeightView& w : parts) {
    require_weight(op, w);
    require<ShapeError>(w.inputs() == parts[0].inputs(), "{}: {} has K = {}, must be {} as in {}",
                        op, described(w), w.inputs(), parts[0].inputs(), described(parts[0]));
    names += (names.empty() ? "" : ", ") + described(w);
  }
  return names;
}

std::int64_t outputs_of(const std::vector<WeightView>& parts) {
  std::int64_t outputs = 0;
  for (const WeightView& w : parts) outputs += w.outputs();
  return outputs;
}

/// Reports whether the whole group has one global scale.
bool has_one_global(const std::vector<WeightView>& parts) {
  if (parts.size() == 1 && !parts[0].is_quantized()) return true;
  return std::ranges::all_of(parts, [&](const WeightView& w) {
    return w.is_quantized() && w.quantized.shape.scope == GlobalScope::tensor &&
           w.quantized.global_scale != nullptr &&
           float_bits(*w.quantized.global_scale) == float_bits(*parts[0].quantized.global_scale);
  });
}

void add_group(WeightPacker& packer, std::int64_t group, const std::vector<WeightView>& parts,
               const std::string& names, Quantizer dense, std::string_view backend) {
  const auto options = [&](const WeightView& w) {
    return QuantizeOptions{.quantizer = dense, .axis = w.axis, .backend = backend};
  };
  if (parts.size() == 1 && !parts[0].is_quantized())
    return packer.add(group, parts[0].dense, options(parts[0]), names);
  std::vector<QuantizedMatrix> made;
  std::vector<PackPart> views;
  made.reserve(parts.size());
  for (const WeightView& w : parts) {
    if (!w.is_quantized()) made.push_back(quantize(w.dense, options(w)));
    const QuantizedView q = w.is_quantized() ? w.quantized : made.back().view();
    views.push_back({q, 0, q.shape.vectors()});
    require_part("pack_weights", q);
  }
  packer.add(group, views, names);
}

}  // namespace

PackedWeights pack_groups(const char* op, std::span<const std::vector<WeightView>> groups,
                          Quantizer dense, std::string_view backend, Device device,
                          std::optional<GateUp> gate_up) {
  std::vector<std::string> names;
  for (const std::vector<WeightView>& parts : groups) {
    names.push_back(checked_names(op, parts));
    require<ShapeError>(
        outputs_of(parts) == outputs_of(groups[0]) && parts[0].inputs() == groups[0][0].inputs(),
        "{}: a group has [N, K] = [{}, {}], must be [{}, {}] as the first", op, outputs_of(parts),
        parts[0].inputs(), outputs_of(groups[0]), groups[0][0].inputs());
  }
  const bool one_global = std::ranges::all_of(groups, has_one_global);
  WeightPacker packer(op,
                      {.groups = std::ssize(groups),
                       .rows = outputs_of(groups[0]),
                       .cols = groups[0][0].inputs(),
                       .scope = one_global ? GlobalScope::tensor : GlobalScope::vector,
                       .gate_up = gate_up,
                       .device = device},
                      {});
  for (std::size_t g = 0; g < groups.size(); ++g) {
    try {
      add_group(packer, static_cast<std::int64_t>(g), groups[g], names[g], dense, backend);
    } catch (const ValueError& e) {
      throw ValueError(fmt::format("{}: {}: {}", op, names[g], e.what()), e.code);
    }
  }
  return packer.finish();
}

std::optional<GlobalScale> larger(const std::optional<GlobalScale>& a,
                                  const std::optional<GlobalScale>& b) {
  if (!a || !b) return a ? a : b;
  return a->multiplier >= b->multiplier ? a : b;
}

std::optional<GlobalScale> largest_input_scale(std::span<const WeightView> parts) {
  std::optional<GlobalScale> largest;
  for (const WeightView& w : parts) largest = larger(largest, w.input_scale);
  return largest;
}

std::vector<WeightView> split_groups(const WeightView& w, std::int64_t groups) {
  constexpr const char* kOp = "split_groups";
  if (w.is_quantized()) {
    require_quantized(kOp, "w", w.quantized);
    require<UnsupportedError>(w.quantized.shape.layout == ScaleLayout::linear,
                              "{}: w has {} scales, must be linear", kOp,
                              layout_name(w.quantized.shape.layout));
  } else {
    require_matrix(kOp, "w", w.dense);
  }
  require<ShapeError>(groups >= 1 && w.rows() % groups == 0,
                      "{}: w.rows = {}, must be a multiple of groups = {}, at least 1", kOp,
                      w.rows(), groups);
  const std::int64_t rows = w.rows() / groups;
  require<ShapeError>(w.axis == BlockAxis::rows || rows % kBlock == 0, ErrorCode::partial_block,
                      "{}: K = w.rows / groups = {}, must be a multiple of 16", kOp, rows);
  std::vector<WeightView> list;
  for (std::int64_t g = 0; g < groups; ++g) {
    WeightView& part = list.emplace_back(w);
    if (w.is_quantized())
      part.quantized = rows_of(w.quantized, g * rows, rows);
    else
      part.dense = rows_of(w.dense, g * rows, rows);
  }
  return list;
}

}  // namespace nvfp4
