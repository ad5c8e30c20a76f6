#include "checkpoint/plan/order.h"

#include <algorithm>
#include <numeric>

#include "core/require.h"

namespace nvfp4::checkpoint {

void sort_tensors(Plan& plan, PlannedShard& shard, std::size_t first_unit) {
  const SpecTable& specs = shard.specs;
  std::vector<std::uint32_t> order(specs.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
    const int bits_a = safetensors::dtype_bits(specs.dtype(a)),
              bits_b = safetensors::dtype_bits(specs.dtype(b));
    return bits_a != bits_b ? bits_a > bits_b : specs.compare_names(a, specs, b) < 0;
  });
  shard.specs.reorder(order);
  std::vector<std::uint32_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<std::uint32_t>(i);
  const auto move_to = [&](std::size_t& i) { i = i == kNone ? kNone : place[i]; };
  for (std::size_t t = shard.first_tensor; t < plan.tensors.size(); ++t) {
    move_to(plan.tensors[t].copy);
    move_to(plan.tensors[t].marker);
  }
  for (PlannedCacheScale& scale : shard.cache_scales) move_to(scale.tensor);
  for (std::size_t u = first_unit; u < plan.units.size(); ++u) {
    Places& p = plan.units[u].places;
    for (std::size_t* i : {&p.codes, &p.scales, &p.weight_global, &p.input_global, &p.marker})
      move_to(*i);
  }
}

std::vector<PlannedName> sorted_names(const Plan& plan) {
  std::vector<PlannedName> names;
  std::size_t count = 0;
  for (const PlannedShard& shard : plan.shards) count += shard.specs.size();
  names.reserve(count);
  for (const PlannedShard& shard : plan.shards)
    for (std::size_t i = 0; i < shard.specs.size(); ++i)
      names.push_back({&shard, static_cast<std::uint32_t>(i)});
  std::ranges::sort(names, [](const PlannedName& a, const PlannedName& b) {
    const int order = a.compare(b);
    return order != 0 ? order < 0 : std::pair(a.shard, a.tensor) < std::pair(b.shard, b.tensor);
  });
  return names;
}

void require_unique_names(const Plan& plan) {
  const std::vector<PlannedName> names = sorted_names(plan);
  const auto twice = std::ranges::adjacent_find(
      names, [](const PlannedName& a, const PlannedName& b) { return a.compare(b) == 0; });
  if (twice != names.end())
    throw UnsupportedError(fmt::format("{}: {} is there already, the input seems to be quantized",
                                       std::next(twice)->shard->file, twice->text()),
                           ErrorCode::already_quantized);
}

}  // namespace nvfp4::checkpoint
