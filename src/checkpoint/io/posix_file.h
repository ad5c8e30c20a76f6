#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "platform/files.h"

/// What the C++ library lacks: files read and written at any offset from any thread, and errors
/// that say which file and why.
namespace nvfp4 {

/// Throws IoError "<path>: cannot <action>: <reason of errno value>".
[[noreturn]] void throw_io_error(const std::filesystem::path& path, const std::string& action,
                                 int error);

/// The same for what std::filesystem throws: which path, what could not be done, why.
[[noreturn]] void throw_io_error(const std::filesystem::filesystem_error& error);

/// Throws IoError where the permissions of a file, or of a folder that is there, keep it from being
/// read.
void require_readable(const std::filesystem::path& path);

using platform::Descriptor;

/// Reads exactly `out.size()` bytes at `offset`. Throws IoError, also where the file ends before.
void read_at(int fd, const std::filesystem::path& path, std::uint64_t offset,
             std::span<std::byte> out);

/// A regular file to read. Move-only.
class InputFile {
 public:
  /// Follows symlinks. Throws IoError (folders, pipes and devices too).
  explicit InputFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return fd_.get(); }
  std::uint64_t bytes() const { return status_.bytes; }
  /// In nanoseconds since the epoch, as seen when it was opened.
  std::int64_t modified_ns() const { return status_.modified_ns; }
  /// Thread-safe. Throws IoError.
  void read(std::uint64_t offset, std::span<std::byte> out) const {
    read_at(fd_.get(), path_, offset, out);
  }
  /// A hint: the disk is asked for what is not in memory. Thread-safe.
  void will_read(std::uint64_t offset, std::uint64_t bytes) const;
  /// Throws IoError if the path now leads to another file, or size or modification time differ.
  void check_unchanged() const;

 private:
  std::filesystem::path path_;
  Descriptor fd_;
  platform::FileStatus status_;
};

/// What a file is called until it is whole: "<path>.partial", or "<path>.<tag>.partial".
std::filesystem::path partial_path(std::filesystem::path path);

/// While it lives, what this process writes below a folder has a tag of the process until it is
/// whole: no process gives a name to what is half of another, where locks keep none away.
class PartialTag {
 public:
  explicit PartialTag(std::filesystem::path folder);
  PartialTag(const PartialTag&) = delete;
  PartialTag& operator=(const PartialTag&) = delete;
  ~PartialTag();

 private:
  std::filesystem::path folder_;
};

/// Removes what is left of files of these names in the folder, by whatever process.
void remove_partials(const std::filesystem::path& folder, const std::set<std::string>& names);

/// Why `bytes` more do not fit into a file system once `freed` are free again; "" if they do, or if
/// it says nothing of its room (0, or more than there can be). Counts what only root may use, so
/// that nothing is refused that could fit.
std::string lack_of_room(const std::filesystem::space_info& space, std::uint64_t bytes,
                         std::uint64_t freed);
/// The same of the file system of a path, which need not be there yet.
std::string lack_of_room(const std::filesystem::path& path, std::uint64_t bytes,
                         std::uint64_t freed = 0);

/// A file under construction: at partial_path() until commit(), removed if never committed.
class PartialFile {
 public:
  /// Replaces a stale partial file. Throws IoError, also where another process writes it.
  explicit PartialFile(std::filesystem::path path);
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile();

  /// The final name.
  const std::filesystem::path& path() const { return path_; }
  bool is_committed() const { return committed_; }
  /// Takes `bytes` of disk now, so that a full disk shows before the work and not after. Where the
  /// file system cannot do that, only sets the size.
  void reserve(std::uint64_t bytes);
  /// Thread-safe.
  void write_at(std::uint64_t offset, std::span<const std::byte> data);
  /// fsync, give_name(), fsync of the folder.
  void commit();
  /// close and rename: whole or absent, unless the system crashes.
  void give_name();

 private:
  void require_lock(const Descriptor& fd) const;
  bool is_own() const;

  std::filesystem::path path_, partial_;
  Descriptor fd_;
  bool committed_ = false;
};

}  // namespace nvfp4
