#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "platform/files.h"

/// Files that are read and written at any offset from any thread, which the C++ library lacks.
/// Errors name the file and the reason.
namespace nvfp4 {

/// Throws IoError "<path>: cannot <action>: <reason of errno value>".
[[noreturn]] void throw_io_error(const std::filesystem::path& path, const std::string& action,
                                 int error);

/// Throws IoError for an error of std::filesystem, with the path, the action and the reason.
[[noreturn]] void throw_io_error(const std::filesystem::filesystem_error& error);

/// Throws IoError if permissions prevent reading the file or the folder.
void require_readable(const std::filesystem::path& path);
/// Throws IoError if there is nothing at the path, or the system does not say what.
void require_exists(const std::filesystem::path& path);

using platform::Descriptor;

/// Reads exactly `out.size()` bytes at `offset`. Throws IoError, also if the file ends before that.
void read_at(int fd, const std::filesystem::path& path, std::uint64_t offset,
             std::span<std::byte> out);

/// A regular file to read. It is move-only.
class InputFile {
 public:
  /// Opens a file and follows symbolic links. Throws IoError, also for folders, pipes and devices.
  explicit InputFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return fd_.get(); }
  std::uint64_t bytes() const { return status_.bytes; }
  /// Returns the modification time when the file was opened, in nanoseconds since the epoch.
  std::int64_t modified_ns() const { return status_.modified_ns; }
  /// Reads exactly `out.size()` bytes. Thread-safe. Throws IoError.
  void read(std::uint64_t offset, std::span<std::byte> out) const {
    read_at(fd_.get(), path_, offset, out);
  }
  /// Asks the disk for bytes that are not in memory. This is only a hint. Thread-safe.
  void will_read(std::uint64_t offset, std::uint64_t bytes) const;
  /// Throws IoError if the path now refers to another file, or if size or modification time differ.
  void check_unchanged() const;

 private:
  std::filesystem::path path_;
  Descriptor fd_;
  platform::FileStatus status_;
};

/// Returns the name of a file until it is whole: "<path>.partial", or "<path>.<tag>.partial".
std::filesystem::path partial_path(std::filesystem::path path);

/// While this object lives, the partial files of this process below a folder have its tag. Without
/// it, and without working locks, a process could rename the half-written file of another.
class PartialTag {
 public:
  explicit PartialTag(std::filesystem::path folder);
  PartialTag(const PartialTag&) = delete;
  PartialTag& operator=(const PartialTag&) = delete;
  ~PartialTag();

 private:
  std::filesystem::path folder_;
};

/// Returns the final names of a file with a name from partial_path(), without and with what may be
/// the tag of a process. Returns none for other names.
std::vector<std::string> names_when_whole(std::string name);

/// Removes partial files of these names from the folder, of every process.
void remove_partials(const std::filesystem::path& folder, const std::set<std::string>& names);

/// Returns why `bytes` more do not fit into a file system after `freed` bytes are freed. Returns ""
/// if they fit, or if its sizes are implausible (0, or too large). Space reserved for root counts
/// as free, so that nothing is refused that could fit.
std::string lack_of_room(const std::filesystem::space_info& space, std::uint64_t bytes,
                         std::uint64_t freed);
/// Does the same for the file system of a path, which need not exist yet.
std::string lack_of_room(const std::filesystem::path& path, std::uint64_t bytes,
                         std::uint64_t freed = 0);

/// A file under construction. It is at partial_path() until commit() and is removed without it.
class PartialFile {
 public:
  /// Creates the file and replaces a stale partial file. Throws IoError, also if another process
  /// writes it.
  explicit PartialFile(std::filesystem::path path);
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile();

  /// Returns the final name.
  const std::filesystem::path& path() const { return path_; }
  bool is_committed() const { return committed_; }
  /// Reserves `bytes` on the disk, so that a full disk is found before the work. Some file systems
  /// cannot reserve; then it only sets the size.
  void reserve(std::uint64_t bytes);
  /// Writes at any offset. Thread-safe.
  void write_at(std::uint64_t offset, std::span<const std::byte> data);
  /// Reads what was written or reserved, before commit(). Thread-safe.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const {
    nvfp4::read_at(fd_.get(), partial_, offset, out);
  }
  /// Calls fsync, give_name(), and fsync for the folder.
  void commit();
  /// Closes and renames the file. It is then whole or absent, unless the system crashes.
  void give_name();

 private:
  void require_lock(const Descriptor& fd) const;
  bool is_own() const;

  std::filesystem::path path_, partial_;
  Descriptor fd_;
  bool committed_ = false;
};

}  // namespace nvfp4
