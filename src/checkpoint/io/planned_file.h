#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/io/posix_file.h"
#include "core/printable.h"
#include "core/require.h"

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

/// The byte ranges of a file that were written: disjoint ranges that do not touch, begin -> end.
/// The methods are thread-safe.
class Coverage {
 public:
  void add(std::uint64_t begin, std::uint64_t end) {
    const std::scoped_lock lock(mutex_);
    auto next = ranges_.upper_bound(begin);
    if (next != ranges_.begin() && std::prev(next)->second >= begin) {
      --next;
      begin = next->first;
    }
    while (next != ranges_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ranges_.erase(next);
    }
    ranges_.emplace_hint(next, begin, end);
  }
  /// Returns the first byte of [begin, end) that is missing, or end.
  std::uint64_t first_missing(std::uint64_t begin, std::uint64_t end) const {
    const std::scoped_lock lock(mutex_);
    const auto next = ranges_.upper_bound(begin);
    if (next == ranges_.begin()) return begin;
    return std::clamp(std::prev(next)->second, begin, end);
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> ranges_;
};

/// Returns the name of a file for messages.
inline std::string name_of_file(const std::filesystem::path& path) {
  return printable(path.string(), 4096);
}

/// A file of tensors under construction. The plan provides the bytes before the tensors
/// (`write_start`) and the size of the file (`file_bytes`). It has `size` tensors, each with a
/// `name` and a range (`begin`, `end`).
template <class FilePlan>
class PlannedFile {
 public:
  PlannedFile(const std::filesystem::path& path, FilePlan plan)
      : name_(name_of_file(path)), plan_(std::move(plan)), file_(path), hash_(plan_.file_bytes()) {
    file_.reserve(plan_.file_bytes());  // Padding is never written and reads as zero.
    std::uint64_t at = 0;
    plan_.write_start([&](std::string_view piece) {
      file_.write_at(at, std::as_bytes(std::span(piece)));
      at += piece.size();
    });
  }

  std::uint64_t file_bytes() const { return plan_.file_bytes(); }

  /// Writes bytes of a tensor. Thread-safe. Throws IoError. Throws ValueError for a range outside
  /// the tensor or after commit().
  void write(std::size_t index, std::uint64_t offset, std::span<const std::byte> data) {
    require<ValueError>(!file_.is_committed(), "{}: is committed, must not be written", name_);
    require<ValueError>(index < plan_.size(), "{}: tensor {}, must be less than {}", name_, index,
                        plan_.size());
    const std::uint64_t bytes = plan_.end(index) - plan_.begin(index);
    if (offset > bytes || data.size() > bytes - offset)
      throw ValueError(fmt::format("{}: tensor '{}': {} bytes at {}, must lie within its {} bytes",
                                   name_, printable(plan_.name(index)), data.size(), offset,
                                   bytes));
    if (data.empty()) return;
    const std::uint64_t begin = plan_.begin(index) + offset;
    file_.write_at(begin, data);
    hash_.add(begin, data);
    written_.add(begin, begin + data.size());
  }

  /// Returns the hash of the file as it is. Blocks that were written in parts are read again.
  /// Throws IoError.
  std::uint64_t hash() {
    return hash_.finish(
        [&](std::uint64_t at, std::span<std::byte> out) { file_.read_at(at, out); });
  }

  /// Commits the file. Throws IoError. Throws ValueError if a byte of a tensor was never written.
  void commit() {
    require<ValueError>(!file_.is_committed(), "{}: is committed already", name_);
    for (std::size_t i = 0; i < plan_.size(); ++i) {
      const std::uint64_t begin = plan_.begin(i), end = plan_.end(i);
      const std::uint64_t missing = written_.first_missing(begin, end);
      if (missing != end)
        throw ValueError(fmt::format("{}: tensor '{}': byte {} of {} was never written", name_,
                                     printable(plan_.name(i)), missing - begin, end - begin));
    }
    file_.commit();
  }

 private:
  std::string name_;
  FilePlan plan_;
  PartialFile file_;
  FileHash hash_;
  Coverage written_;
};

}  // namespace nvfp4
