#include "ops/weight_packer.h"

#include <algorithm>
#include <utility>

#include "core/device_memory.h"
#include "core/require.h"
#include "ops/options.h"

namespace nvfp4 {
namespace {

bool is_whole(const PackPart& p) { return p.first == 0 && p.count == p.w.shape.vectors(); }
bool has_linear_rows(const PackPart& p) {
  return p.w.shape.axis == BlockAxis::rows && p.w.shape.layout == ScaleLayout::linear;
}

/// Returns weights on the CPU with axis rows and linear scales.
QuantizedMatrix with_linear_rows(const QuantizedView& w) { return unpack_weights(pack_weights(w)); }

}  // namespace

WeightPacker::WeightPacker(const char* op, const PackedShape& shape, const PackOptions& options)
    : op_(op), options_(options), names_(static_cast<std::size_t>(shape.groups)) {
  packed_ = options.memory.empty()
                ? std::make_shared<PackedWeights::Impl>(op, shape)
                : std::make_shared<PackedWeights::Impl>(op, shape, options.memory);
  if (to_gpu() && options.check_scales)
    bad_scales_ =
        Buffer(shape.groups * static_cast<std::int64_t>(sizeof(std::uint64_t)), shape.device);
}

void WeightPacker::add(std::int64_t group, std::span<const PackPart> parts,
                       const std::string& name) {
  names_[static_cast<std::size_t>(group)] = name;
  if (!to_gpu()) return add_on_cpu(group, parts);
  const PackPart there = on_gpu(parts);
  auto* const bad = static_cast<std::uint64_t*>(bad_scales_.data());
  gemm_backend(packed_->device())
      .pack({.parts = {&there, 1},
             .packed = packed_.get(),
             .group = group,
             .bad_scale = bad == nullptr ? nullptr : bad + group,
             .stream = options_.stream});
}

void WeightPacker::add_on_cpu(std::int64_t group, std::span<const PackPart> parts) {
  std::vector<QuantizedMatrix> copies;  // parts copied from a GPU
  std::vector<PackPart> here(parts.begin(), parts.end());
  copies.reserve(parts.size());
  for (PackPart& p : here)
    if (p.w.device.type != DeviceType::cpu) p.w = copies.emplace_back(to_device(p.w, {})).view();
  float* global = packed_->global_scale() + group * packed_->group_globals();
  if (packed_->scope() == GlobalScope::tensor)
    *global = *here[0].w.global_scale;
  else
    for (const PackPart& p : here)
      for (std::int64_t n = 0; n < p.count; ++n) *global++ = p.w.global_of(p.first + n);
  gemm_backend({}).pack({.parts = here, .packed = packed_.get(), .group = group});
}

void WeightPacker::copy_bytes(void* to, Device from_device, const void* from, std::int64_t bytes) {
  if (bytes > 0)
    device_copy(packed_->device(), to, bytes, from_device, from, bytes, bytes, 1, options_.stream);
}

QuantizedSpan WeightPacker::stage(const QuantizedShape& shape) {
  if (stage_.shape() != shape) stage_ = QuantizedMatrix(shape, packed_->device());
  return stage_.span();
}

PackPart WeightPacker::on_gpu(std::span<const PackPart> parts) {
  const PackPart& only = parts[0];
  const bool one = parts.size() == 1 && only.w.shape.scope == packed_->scope();
  if (one && only.w.device == packed_->device()) return only;
  const bool from_cpu = only.w.device.type == DeviceType::cpu;
  from_cpu_ |= from_cpu;
  if (one && from_cpu && (is_whole(only) || !has_linear_rows(only))) return uploaded_whole(only);

  const QuantizedShape shape{
      .rows = packed_->rows(), .cols = packed_->cols(), .scope = packed_->scope()};
  const QuantizedSpan to = stage(shape);
  whole_ = nullptr;
  std::int64_t row = 0;
  for (const PackPart& given : parts) {
    PackPart p = given;
    QuantizedMatrix linear;
    std::uint8_t* const scales = to.scales + row * shape.blocks();
    if (!has_linear_rows(p) && from_cpu) {
      linear = with_linear_rows(p.w);
      p.w = linear.view();
    }
    require<UnsupportedError>(
        p.w.shape.axis == BlockAxis::rows && (has_linear_rows(p) || is_whole(p)),
        "{}: several parts on a GPU must be [N, K] with blocks along the rows", op_);
    copy_bytes(to.codes + row * shape.cols / 2, p.w.device, p.w.codes + p.first * shape.cols / 2,
               p.count * shape.cols / 2);
    if (has_linear_rows(p))
      copy_bytes(scales, p.w.device, p.w.scales + p.first * shape.blocks(),
                 p.count * shape.blocks());
    else
      relayout_scales(
          {p.w.scales, static_cast<std::size_t>(p.w.shape.scale_bytes())}, p.w.shape.layout,
          {scales, static_cast<std::size_t>(p.count * shape.blocks())}, ScaleLayout::linear,
          p.count, shape.blocks(), packed_->device(), options_.stream);
    row += p.count;
  }
  stage_globals(parts);
  return {QuantizedView(to), 0, shape.rows};
}

/// Uploads a whole part in its own layout, once for all groups.
PackPart WeightPacker::uploaded_whole(const PackPart& part) {
  if (whole_ != part.w.codes || stage_.shape() != part.w.shape || is_whole(part)) {
    const QuantizedSpan to = stage(part.w.shape);
    copy(part.w, to, options_.stream);
    whole_ = part.w.codes;
  }
  return {stage_.view(), part.first, part.count};
}

void WeightPacker::stage_globals(std::span<const PackPart> parts) {
  float* to = stage_.global_scale();
  constexpr std::int64_t kFloat = sizeof(float);
  for (const PackPart& p : parts) {
    const std::int64_t count = packed_->scope() == GlobalScope::tensor ? 1 : p.count;
    if (p.w.device.type == DeviceType::cpu) {
      std::vector<float> values;
      for (std::int64_t n = 0; n < count; ++n) values.push_back(p.w.global_of(p.first + n));
      copy_bytes(to, {}, values.data(), count * kFloat);
    } else if (p.w.shape.scope == GlobalScope::vector) {
      copy_bytes(to, p.w.device, p.w.global_scale + p.first, count * kFloat);
    } else {  // each copy doubles the repeated values
      copy_bytes(to, p.w.device, p.w.global_scale, kFloat);
      for (std::int64_t done = 1; done < count; done *= 2)
        copy_bytes(to + done, packed_->device(), to, std::min(done, count - done) * kFloat);
    }
    if (packed_->scope() == GlobalScope::tensor) return;
    to += count;
  }
}

void WeightPacker::check_scales() {
  std::vector<std::uint64_t> found(names_.size());
  const auto bytes = static_cast<std::int64_t>(found.size() * sizeof found[0]);
  device_copy({}, found.data(), bytes, packed_->device(), bad_scales_.data(), bytes, bytes, 1,
              options_.stream);
  synchronize(packed_->device(), options_.stream);
  const auto blocks = static_cast<std::uint64_t>(packed_->blocks());
  for (std::size_t g = 0; g < found.size(); ++g) {
    const std::uint64_t at = ~found[g];
    require<ValueError>(
        found[g] == 0,
        "{}: {}scale of output {}, block {}{} is NaN or has its sign set, must be at most 0x7E",
        op_, names_[g].empty() ? "" : names_[g] + ": ",
        at / blocks % static_cast<std::uint64_t>(packed_->rows()), at % blocks,
        names_.size() > 1 ? fmt::format(" of group {}", g) : "");
  }
}

PackedWeights WeightPacker::finish() {
  if (to_gpu()) {
    if (options_.check_scales)
      check_scales();
    else if (from_cpu_)  // the staging memory is about to be freed
      synchronize(packed_->device(), options_.stream);
  }
  return PackedWeights(std::move(packed_));
}

}  // namespace nvfp4
