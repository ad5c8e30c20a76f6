#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

/// What the C++ library lacks of files. A call that fails says so by its result and leaves the
/// reason in errno; signals that interrupt it do not fail it.
namespace nvfp4::platform {

/// An open file's number, or -1.
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

/// Whether a value of errno says so: of the disk, or of what is allowed to somebody.
bool is_disk_full(int error);

enum class Open {
  read,           ///< a file, or whatever else can be read
  read_promptly,  ///< the same, but nobody has to write to a pipe for it to be opened
  folder,
  create,  ///< to write; it must not be there, nor a link
  append,  ///< to write to what is there: a pipe, a terminal
  sync,    ///< to be synced, no more
  lock,    ///< created where it is not there, never through a link
};
Descriptor open(const std::filesystem::path& path, Open how);
/// Also where a signal interrupts it the file is closed.
bool close(int fd);

struct FileStatus {
  enum class Kind { file, folder, other } kind = Kind::other;
  std::uint64_t bytes = 0, allocated = 0;  ///< size, and what it takes of the disk
  std::int64_t modified_ns = 0;            ///< since the epoch
  std::uint64_t volume = 0, number = 0;    ///< together of this file alone
  unsigned mode = 0;                       ///< permissions, as chmod takes them
};
std::optional<FileStatus> status_of(int fd);
std::optional<FileStatus> status_of(const std::filesystem::path& path);
bool set_mode(const std::filesystem::path& path, unsigned mode);

/// How many bytes were moved, 0 at the end of the file, -1. Those with an offset from any thread.
std::ptrdiff_t read(int fd, void* out, std::size_t bytes);
std::ptrdiff_t write(int fd, const void* data, std::size_t bytes);
std::ptrdiff_t read_at(int fd, void* out, std::size_t bytes, std::uint64_t offset);
std::ptrdiff_t write_at(int fd, const void* data, std::size_t bytes, std::uint64_t offset);

/// A hint: the disk is asked for what is not in memory.
void will_read(int fd, std::uint64_t offset, std::uint64_t bytes);
/// A hint: the transfer to the disk starts.
void start_writing(int fd, std::uint64_t offset, std::uint64_t bytes);
/// Takes that much of the disk; where the file system cannot, only sets the size.
bool reserve(int fd, std::uint64_t bytes);
/// A range of a file that is no hole.
struct Range {
  std::uint64_t begin = 0, end = 0;
};
/// Returns the first range at `from` or behind. A file system without holes has one range. At the
/// end of the file, or on an error, `begin` is the largest number.
Range next_data(int fd, std::uint64_t from);

/// Until it is on the disk. Of a folder: true where the file system cannot.
bool sync(int fd);
bool sync_folder(int fd);
/// All of the file system that the file is on, where kSyncsFileSystems.
bool sync_file_system(int fd);
extern const bool kSyncsFileSystems;

bool remove_file(const std::filesystem::path& path);
/// In one step, over what is there.
bool replace_file(const std::filesystem::path& from, const std::filesystem::path& to);
/// A second name of a file; false with EEXIST where it is taken.
bool link_file(const std::filesystem::path& from, const std::filesystem::path& to);
bool may_write_in(const std::filesystem::path& folder);

/// Until the descriptor is closed, also by the end of the process. Never waits: false with
/// EWOULDBLOCK if another process has it.
bool lock(int fd);
/// The same of a folder, as Open::folder opened it, where many may share it.
bool lock_folder(int fd, bool shared);

/// Pages of a file to read; nullptr.
const std::byte* map(int fd, std::uint64_t bytes);
void unmap(const std::byte* start, std::uint64_t bytes);

}  // namespace nvfp4::platform
