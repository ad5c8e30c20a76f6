#include "checkpoint/write/arrivals.h"

#include <algorithm>
#include <map>
#include <string>

namespace nvfp4::checkpoint {
namespace {

std::string name_of_shard(const TensorFile& file) { return file.path().filename().string(); }

}  // namespace

Arrivals::Arrivals(const Plan& plan, const std::vector<bool>& done, ShardSupply& supply)
    : supply_(supply) {
  std::map<const TensorFile*, std::size_t> last;
  std::vector<bool> measured(plan.groups.size());
  const auto use = [&](const PlannedTensor& tensor, std::size_t t) {
    for (const StoredTensor& part : {tensor.stored, tensor.source->data, tensor.source->scales}) {
      if (!part) continue;
      if (!last.contains(part.file)) first_.push_back({t, part.file});
      last[part.file] = t;
    }
  };
  for (std::size_t s = 0; s < plan.shards.size(); ++s) {
    const PlannedShard& shard = plan.shards[s];
    if (done[s]) continue;
    for (std::size_t t = shard.first_tensor; t < shard.first_tensor + shard.tensors; ++t) {
      const PlannedTensor& tensor = plan.tensors[t];
      use(tensor, t);
      for (std::size_t u = 0; u < tensor.units; ++u) {
        const Unit& unit = plan.units[tensor.first_unit + u];
        if (unit.second != kNone) use(plan.tensors[unit.second], t);
        if (measured[unit.group]) continue;
        measured[unit.group] = true;
        for (const std::size_t member : plan.groups[unit.group].units)
          use(plan.tensors[plan.units[member].tensor], t);
      }
    }
  }
  for (const auto& [file, t] : last) last_.push_back({t, file});
  std::ranges::sort(last_, {},
                    [](const Use& u) { return std::pair(u.tensor, name_of_shard(*u.file)); });
  std::vector<std::string> order;
  order.reserve(first_.size());
  for (const Use& u : first_) order.push_back(name_of_shard(*u.file));
  supply_.expect(order);
}

void Arrivals::before(std::size_t t) {
  for (; arrived_ < first_.size() && first_[arrived_].tensor <= t; ++arrived_) {
    supply_.need(name_of_shard(*first_[arrived_].file));
    first_[arrived_].file->arrive();
  }
}

bool Arrivals::leaves(std::size_t end) const {
  return left_ < last_.size() && last_[left_].tensor < end;
}

void Arrivals::leave(std::size_t end) {
  for (; leaves(end); ++left_) {
    last_[left_].file->leave();
    supply_.done(name_of_shard(*last_[left_].file));
  }
}

}  // namespace nvfp4::checkpoint
