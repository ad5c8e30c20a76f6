#include "checkpoint/io/planned_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace nvfp4 {
namespace {

constexpr std::uint64_t kHashBlock = 1 << 16;

std::uint64_t hash_of(std::uint64_t block, std::span<const std::byte> data) {
  const bool zeros = std::ranges::all_of(data, [](std::byte b) { return b == std::byte{0}; });
  return zeros ? 0 : XXH3_64bits_withSeed(data.data(), data.size(), block);
}

}  // namespace

FileHash::FileHash(std::uint64_t bytes)
    : bytes_(bytes), done_((bytes + kHashBlock - 1) / kHashBlock) {}

void FileHash::add(std::uint64_t offset, std::span<const std::byte> data) {
  if (data.empty()) return;
  const std::uint64_t end = offset + data.size();
  const std::uint64_t first = offset / kHashBlock, last = (end - 1) / kHashBlock;
  const std::uint64_t begin =
      (offset + kHashBlock - 1) / kHashBlock;  // first block within the range
  const std::uint64_t whole = std::max(begin, end == bytes_ ? last + 1 : end / kHashBlock);
  std::uint64_t sum = 0;
  for (std::uint64_t b = begin; b < whole; ++b) {
    const std::uint64_t at = b * kHashBlock;
    sum += hash_of(b, data.subspan(at - offset, std::min(kHashBlock, end - at)));
  }
  const std::lock_guard lock(mutex_);
  for (std::uint64_t b = first; b <= last; ++b) rewritten_ |= done_[b];
  for (std::uint64_t b = begin; b < whole; ++b) done_[b] = true;
  sum_ += sum;
}

std::uint64_t FileHash::finish(
    const std::function<void(std::uint64_t offset, std::span<std::byte> out)>& read) {
  const std::lock_guard lock(mutex_);
  if (rewritten_) {
    done_.assign(done_.size(), false);
    sum_ = 0;
    rewritten_ = false;
  }
  std::vector<std::byte> block;
  for (std::uint64_t b = 0; read && b < done_.size(); ++b) {
    if (done_[b]) continue;
    block.resize(std::min(kHashBlock, bytes_ - b * kHashBlock));
    read(b * kHashBlock, block);
    sum_ += hash_of(b, block);
    done_[b] = true;
  }
  return sum_;
}

}  // namespace nvfp4
