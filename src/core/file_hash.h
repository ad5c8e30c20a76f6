#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

namespace nvfp4 {

/// The hash of a file whose ranges come in any order from any thread: the sum, modulo 2^64, of the
/// XXH3 of each block of 64 KiB, seeded with the block's number. It detects damage, not intent.
class FileHash {
 public:
  explicit FileHash(std::uint64_t bytes);
  /// Hashes the blocks that lie within the range. Thread-safe.
  void add(std::uint64_t offset, std::span<const std::byte> data);
  /// Returns the hash. `read` fills a block that no range held whole.
  std::uint64_t finish(
      const std::function<void(std::uint64_t offset, std::span<std::byte> out)>& read);

 private:
  std::uint64_t bytes_, sum_ = 0;
  std::mutex mutex_;
  std::vector<bool> done_;  ///< of each block
  bool rewritten_ = false;  ///< a block that was hashed has other bytes now
};

}  // namespace nvfp4
