#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

/// File operations that the C++ library lacks. A call that fails returns a failure and sets errno.
/// A signal that interrupts a call does not make it fail.
namespace nvfp4::platform {

/// The number of an open file, or -1. It is closed by the destructor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// Reports whether a value of errno means a full disk or an exceeded quota.
bool is_disk_full(int error);

enum class Open {
  read,           ///< a file, or anything else that can be read
  read_promptly,  ///< the same; opening a pipe does not wait for a writer
  folder,
  create,  ///< a new file to write and read; neither a file nor a link may exist
  append,  ///< an existing file to append to: a terminal, a pipe with a reader (ENXIO without one)
  sync,    ///< a file that is only synced
  lock,    ///< a lock file, created if missing, never through a link
};
Descriptor open(const std::filesystem::path& path, Open how);
/// Closes a file. The file is closed even if a signal interrupts the call.
bool close(int fd);

struct FileStatus {
  enum class Kind { file, folder, other } kind = Kind::other;
  std::uint64_t bytes = 0, allocated = 0;  ///< size, and size on the disk
  std::int64_t modified_ns = 0;            ///< nanoseconds since the epoch
  std::uint64_t volume = 0, number = 0;    ///< identify the file together
  unsigned mode = 0;                       ///< permissions as in chmod
};
std::optional<FileStatus> status_of(int fd);
std::optional<FileStatus> status_of(const std::filesystem::path& path);
bool set_mode(const std::filesystem::path& path, unsigned mode);

/// Reads or writes at most `bytes` bytes. Returns their number, 0 at the end of the file, or -1.
/// Calls with an offset can run in any thread.
std::ptrdiff_t read(int fd, void* out, std::size_t bytes);
std::ptrdiff_t write(int fd, const void* data, std::size_t bytes);
std::ptrdiff_t read_at(int fd, void* out, std::size_t bytes, std::uint64_t offset);
std::ptrdiff_t write_at(int fd, const void* data, std::size_t bytes, std::uint64_t offset);

/// Hints that this range will be read, so that the disk starts to read it.
void will_read(int fd, std::uint64_t offset, std::uint64_t bytes);
/// Hints that the transfer of this range to the disk should start.
void start_writing(int fd, std::uint64_t offset, std::uint64_t bytes);
/// Reserves space on the disk. If the file system cannot, only sets the size.
bool reserve(int fd, std::uint64_t bytes);
/// A range of a file that is not a hole.
struct Range {
  std::uint64_t begin = 0, end = 0;
};
/// Returns the first range at `from` or behind. A file system without holes has one range. At the
/// end of the file, or on an error, `begin` is the largest number.
Range next_data(int fd, std::uint64_t from);

/// Waits until the file is on the disk. For a folder it returns true if the file system cannot sync
/// it.
bool sync(int fd);
bool sync_folder(int fd);
/// Syncs the whole file system of the file, if kSyncsFileSystems.
bool sync_file_system(int fd);
extern const bool kSyncsFileSystems;

bool remove_file(const std::filesystem::path& path);
/// Renames a file atomically and replaces an existing one.
bool replace_file(const std::filesystem::path& from, const std::filesystem::path& to);
/// Creates a second name of a file. Returns false with EEXIST if the name exists.
bool link_file(const std::filesystem::path& from, const std::filesystem::path& to);
bool may_write_in(const std::filesystem::path& folder);

/// Locks a file until the descriptor is closed, also by the end of the process. Never waits:
/// returns false with EWOULDBLOCK if another process has the lock.
bool lock(int fd);
/// Locks a folder in the same way. The folder is opened with Open::folder, and many processes can
/// share it.
bool lock_folder(int fd, bool shared);

/// Maps a file for reading. Returns nullptr on failure.
const std::byte* map(int fd, std::uint64_t bytes);
void unmap(const std::byte* start, std::uint64_t bytes);

}  // namespace nvfp4::platform
