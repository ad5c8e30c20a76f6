#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "checkpoint/io/coverage.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/io/printable.h"
#include "core/require.h"

namespace nvfp4 {

/// What messages call a file.
inline std::string name_of_file(const std::filesystem::path& path) {
  return printable(path.string(), 4096);
}

/// A file of tensors under construction. Its plan says what precedes them (`start`), where each of
/// the `tensors` lies (`name`, `begin`, `bytes`) and how long the file is (`file_bytes`).
template <class FilePlan>
class PlannedFile {
 public:
  PlannedFile(const std::filesystem::path& path, FilePlan plan)
      : name_(name_of_file(path)), plan_(std::move(plan)), file_(path) {
    file_.reserve(plan_.file_bytes);  // what is never written, padding, reads as zero
    file_.write_at(0, std::as_bytes(std::span(plan_.start)));
    plan_.start = std::string();  // there may be a hundred bytes for each tensor
  }

  std::uint64_t file_bytes() const { return plan_.file_bytes; }

  /// Thread-safe. Throws IoError, and ValueError for a range outside the tensor or after commit().
  void write(std::size_t index, std::uint64_t offset, std::span<const std::byte> data) {
    require<ValueError>(!file_.is_committed(), "{}: is committed, must not be written", name_);
    require<ValueError>(index < plan_.tensors.size(), "{}: tensor {}, must be less than {}", name_,
                        index, plan_.tensors.size());
    const auto& t = plan_.tensors[index];
    if (offset > t.bytes || data.size() > t.bytes - offset)
      throw ValueError(fmt::format("{}: tensor '{}': {} bytes at {}, must lie within its {} bytes",
                                   name_, printable(t.name), data.size(), offset, t.bytes));
    if (data.empty()) return;
    const std::uint64_t begin = t.begin + offset;
    file_.write_at(begin, data);
    written_.add(begin, begin + data.size());
  }

  /// Throws IoError, and ValueError if a byte of a tensor was never written.
  void commit() {
    require<ValueError>(!file_.is_committed(), "{}: is committed already", name_);
    for (const auto& t : plan_.tensors) {
      const std::uint64_t missing = written_.first_missing(t.begin, t.begin + t.bytes) - t.begin;
      if (missing != t.bytes)
        throw ValueError(fmt::format("{}: tensor '{}': byte {} of {} was never written", name_,
                                     printable(t.name), missing, t.bytes));
    }
    file_.commit();
  }

 private:
  std::string name_;
  FilePlan plan_;
  PartialFile file_;
  Coverage written_;
};

}  // namespace nvfp4
