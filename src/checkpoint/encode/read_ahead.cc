#include <algorithm>
#include <exception>

#include "checkpoint/encode/encoder.h"

namespace nvfp4::checkpoint {
namespace {

constexpr std::uint64_t kPieceBytes = 1 << 20;

}  // namespace

std::uint64_t input_bytes(const Plan& plan, const Unit& unit) {
  const auto of = [&](const PlannedTensor& tensor) {
    return static_cast<std::uint64_t>(static_cast<double>(unit.slice.rows * unit.slice.cols) /
                                      static_cast<double>(tensor.source->elements()) *
                                      static_cast<double>(tensor.bytes_before));
  };
  return of(plan.tensors[unit.tensor]) + (unit.second == kNone ? 0 : of(plan.tensors[unit.second]));
}

ReadAhead::ReadAhead(const Plan& plan, const std::vector<bool>& done)
    : plan_(plan), done_(done), limit_(kAheadBytes), thread_([this] { run(); }) {}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ReadAhead::advance(std::uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    limit_ = bytes + kAheadBytes;
  }
  changed_.notify_one();
}

void ReadAhead::run() try {
  for (std::size_t s = 0; s < plan_.shards.size(); ++s) {
    const PlannedShard& shard = plan_.shards[s];
    if (done_[s]) continue;
    for (std::size_t t = 0; t < shard.tensors && wait_until_near(); ++t)
      ask_for(plan_.tensors[shard.first_tensor + t]);
  }
} catch (const std::exception&) {
  // The read was a hint. A later read reports the error.
}

void ReadAhead::ask_for(const PlannedTensor& tensor) {
  if (tensor.copy != kNone)
    return ask_for(tensor.stored, 0, tensor.stored.info->bytes, tensor.stored.info->bytes);
  const StoredTensor& data = tensor.source->data;
  const double bytes = static_cast<double>(data.info->bytes) /
                       static_cast<double>(std::max<std::int64_t>(1, tensor.source->elements()));
  for (std::size_t u = 0; u < tensor.units; ++u) {
    const Unit& unit = plan_.units[tensor.first_unit + u];
    ask_for(data, static_cast<std::uint64_t>(bytes * static_cast<double>(unit.slice.amax_begin)),
            static_cast<std::uint64_t>(bytes * static_cast<double>(unit.slice.amax_count)),
            input_bytes(plan_, unit));
    if (unit.second == kNone) continue;
    const StoredTensor& second = plan_.tensors[unit.second].source->data;
    ask_for(second, 0, second.info->bytes, 0);
  }
}

void ReadAhead::ask_for(const StoredTensor& tensor, std::uint64_t begin, std::uint64_t bytes,
                        std::uint64_t counted) {
  const std::uint64_t start = position_;
  for (std::uint64_t at = 0; at < bytes && wait_until_near(); at += kPieceBytes) {
    const std::uint64_t piece = std::min(kPieceBytes, bytes - at);
    tensor.file->will_read(*tensor.info, begin + at, piece);
    position_ += piece;
  }
  position_ = start + counted;
}

bool ReadAhead::wait_until_near() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || position_ < limit_; });
  return !stopped_;
}

}  // namespace nvfp4::checkpoint
