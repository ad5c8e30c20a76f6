#include "checkpoint/plan/order.h"

#include <algorithm>
#include <numeric>

namespace nvfp4::checkpoint {

void sort_tensors(Plan& plan, PlannedShard& shard, std::size_t first_unit) {
  std::vector<std::size_t> order(shard.specs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    const safetensors::TensorSpec& spec = shard.specs[i];
    return std::pair(-safetensors::dtype_bits(spec.dtype), std::string_view(spec.name));
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  std::vector<std::size_t> place(order.size());
  std::vector<safetensors::TensorSpec> sorted;
  sorted.reserve(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    sorted.push_back(std::move(shard.specs[order[i]]));
  }
  shard.specs = std::move(sorted);
  const auto move_to = [&](std::size_t& i) { i = i == kNone ? kNone : place[i]; };
  for (std::size_t t = shard.first_tensor; t < plan.tensors.size(); ++t) {
    move_to(plan.tensors[t].copy);
    move_to(plan.tensors[t].marker);
  }
  for (PlannedCacheScale& scale : shard.cache_scales) move_to(scale.tensor);
  for (std::size_t u = first_unit; u < plan.units.size(); ++u) {
    Unit& unit = plan.units[u];
    for (std::size_t* i :
         {&unit.codes, &unit.scales, &unit.weight_global, &unit.input_global, &unit.marker})
      move_to(*i);
  }
}

}  // namespace nvfp4::checkpoint
