#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

namespace nvfp4 {

/// The hash of a file whose ranges are added in any order and by any thread. It is the sum, modulo
/// 2^64, of the XXH3 of each block of 64 KiB, seeded with the block's index. Blocks of zeros count
/// as 0, so that holes need no reading. It detects damage, but it is not cryptographic.
class FileHash {
 public:
  explicit FileHash(std::uint64_t bytes);
  /// Hashes the blocks that lie within the range. Thread-safe.
  void add(std::uint64_t offset, std::span<const std::byte> data);
  /// Returns the hash. `read` reads the blocks that no single range contained. Without it they are
  /// zeros.
  std::uint64_t finish(
      const std::function<void(std::uint64_t offset, std::span<std::byte> out)>& read);

 private:
  std::uint64_t bytes_, sum_ = 0;
  std::mutex mutex_;
  std::vector<bool> done_;  ///< true for each block that was hashed
  bool rewritten_ = false;  ///< true if a hashed block was added again
};

}  // namespace nvfp4
