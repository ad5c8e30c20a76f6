#include "layers/weights.h"

#include "core/require.h"
#include "layers/rows.h"
#include "ops/options.h"

namespace nvfp4 {
namespace {

std::string described(const WeightView& w) { return w.name.empty() ? "w" : w.name; }

}  // namespace

void require_layer_device(const char* op, Device device) {
  if (device.type == DeviceType::cpu) return;
  const std::string reason = why_unavailable(device);
  require<UnsupportedError>(reason.empty(), "{}: device = {}: {}", op, device_name(device), reason);
  for (const DeviceInfo& gpu : cuda_devices())
    require<UnsupportedError>(gpu.device != device || gpu.architecture == "sm_90",
                              "{}: device = {} is {}, layers run on the CPU and on sm_90 only", op,
                              device_name(device), gpu.architecture);
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

PackedWeights pack_parts(const char* op, std::span<const WeightView> parts, Quantizer dense,
                         std::string_view backend) {
  require<ShapeError>(!parts.empty(), "{}: no weights, must be at least one", op);
  std::string names;
  for (const WeightView& w : parts) {
    require_weight(op, w);
    require<ShapeError>(w.inputs() == parts[0].inputs(), "{}: {} has K = {}, must be {} as in {}",
                        op, described(w), w.inputs(), parts[0].inputs(), described(parts[0]));
    names += (names.empty() ? "" : ", ") + described(w);
  }
  const auto options = [&](const WeightView& w) {
    return QuantizeOptions{.quantizer = dense, .axis = w.axis, .backend = backend};
  };
  try {
    if (parts.size() == 1 && !parts[0].is_quantized())
      return pack_weights(parts[0].dense, options(parts[0]));
    std::vector<QuantizedMatrix> made;
    std::vector<QuantizedView> views;
    made.reserve(parts.size());
    for (const WeightView& w : parts) {
      if (!w.is_quantized()) made.push_back(quantize(w.dense, options(w)));
      views.push_back(w.is_quantized() ? w.quantized : made.back().view());
    }
    return pack_weights(views);
  } catch (const ValueError& e) {
    throw ValueError(fmt::format("{}: {}: {}", op, names, e.what()));
  }
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
  require<ShapeError>(w.axis == BlockAxis::rows || rows % kBlock == 0,
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
