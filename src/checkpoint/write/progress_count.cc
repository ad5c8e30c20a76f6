#include "checkpoint/write/progress_count.h"

namespace nvfp4::checkpoint {

ProgressCount::ProgressCount(const Plan& plan, const std::function<void(const Progress&)>& tell)
    : plan_(plan),
      tell_(tell),
      remaining_(std::make_unique<std::atomic<std::uint64_t>[]>(plan.tensors.size())) {}

std::uint64_t ProgressCount::work_of(std::size_t tensor) const {
  const PlannedTensor& t = plan_.tensors[tensor];
  return t.copy != kNone ? t.stored.info->bytes : static_cast<std::uint64_t>(t.source->elements());
}

void ProgressCount::start(const std::vector<bool>& done) {
  for (std::size_t t = 0; t < plan_.tensors.size(); ++t) {
    remaining_[t] = work_of(t);
    if (done[plan_.tensors[t].shard]) continue;
    ++progress_.tensors_total;
    progress_.bytes_total += plan_.tensors[t].bytes_before;
  }
}

void ProgressCount::finish(std::size_t tensor, std::uint64_t work) {
  const bool whole = remaining_[tensor].fetch_sub(work) == work;
  const PlannedTensor& t = plan_.tensors[tensor];
  const double bytes =
      work == 0 ? 0
                : static_cast<double>(work) *
                      (static_cast<double>(t.bytes_before) / static_cast<double>(work_of(tensor)));
  const std::lock_guard lock(mutex_);
  progress_.bytes_done += static_cast<std::uint64_t>(bytes);
  progress_.tensor = t.name;
  progress_.tensors_done += whole;
  if (tell_) tell_(progress_);
}

}  // namespace nvfp4::checkpoint
