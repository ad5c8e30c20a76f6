#include "platform/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace nvfp4::platform {
namespace {

// Linux transfers at most 2 GiB - 4 KiB in a call.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;
// Linux reads at most read_ahead_kb in a call, 128 by default, and ignores the rest.
constexpr std::uint64_t kReadAheadStep = 128 << 10;

/// Repeats a system call that a signal interrupted.
template <class Call>
auto retry(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result == -1 && errno == EINTR);
  return result;
}

FileStatus::Kind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return FileStatus::Kind::file;
  return S_ISDIR(mode) ? FileStatus::Kind::folder : FileStatus::Kind::other;
}

FileStatus converted(const struct stat& s) {
  constexpr std::uint64_t kBlock = 512;  // unit of st_blocks
  return {kind_of(s.st_mode),
          static_cast<std::uint64_t>(s.st_size),
          kBlock * static_cast<std::uint64_t>(s.st_blocks),
          std::int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec,
          static_cast<std::uint64_t>(s.st_dev),
          static_cast<std::uint64_t>(s.st_ino),
          static_cast<unsigned>(s.st_mode & 0777)};
}

int flags_of(Open how) {
  switch (how) {
    case Open::read:
    case Open::sync:
      return O_RDONLY;
    case Open::read_promptly:
      return O_RDONLY | O_NONBLOCK;
    case Open::folder:
      return O_RDONLY | O_DIRECTORY;
    case Open::create:
      return O_RDWR | O_CREAT | O_EXCL;
    case Open::append:
      return O_WRONLY | O_NOCTTY | O_NONBLOCK;
    case Open::lock:  // opened for writing: NFS has exclusive locks only for such files
      return O_RDWR | O_CREAT | O_NOFOLLOW;
  }
  return O_RDONLY;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

bool is_disk_full(int error) { return error == ENOSPC || error == EDQUOT; }

Descriptor open(const std::filesystem::path& path, Open how) {
  Descriptor fd(retry([&] { return ::open(path.c_str(), flags_of(how) | O_CLOEXEC, 0666); }));
  // Opening a pipe does not wait for a reader, but writing does.
  if (how == Open::append && fd.get() >= 0) ::fcntl(fd.get(), F_SETFL, O_WRONLY);
  return fd;
}

bool close(int fd) {
  // After EINTR the descriptor is closed.
  return ::close(fd) == 0 || errno == EINTR;
}

std::optional<FileStatus> status_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return {};
  return converted(status);
}

std::optional<FileStatus> status_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return converted(status);
}

bool set_mode(const std::filesystem::path& path, unsigned mode) {
  return ::chmod(path.c_str(), static_cast<mode_t>(mode)) == 0;
}

std::ptrdiff_t read(int fd, void* out, std::size_t bytes) {
  return retry([&] { return ::read(fd, out, std::min(bytes, kMaxTransfer)); });
}

std::ptrdiff_t write(int fd, const void* data, std::size_t bytes) {
  return retry([&] { return ::write(fd, data, std::min(bytes, kMaxTransfer)); });
}

std::ptrdiff_t read_at(int fd, void* out, std::size_t bytes, std::uint64_t offset) {
  return retry(
      [&] { return ::pread(fd, out, std::min(bytes, kMaxTransfer), static_cast<off_t>(offset)); });
}

std::ptrdiff_t write_at(int fd, const void* data, std::size_t bytes, std::uint64_t offset) {
  return retry([&] {
    return ::pwrite(fd, data, std::min(bytes, kMaxTransfer), static_cast<off_t>(offset));
  });
}

void will_read(int fd, std::uint64_t offset, std::uint64_t bytes) {
  std::byte first{};
  iovec where{&first, 1};
  // The first byte is in memory. The others are assumed to be, too.
  if (bytes == 0 || ::preadv2(fd, &where, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1) return;
  for (std::uint64_t at = 0; at < bytes; at += kReadAheadStep)
    ::posix_fadvise(fd, static_cast<off_t>(offset + at),
                    static_cast<off_t>(std::min(kReadAheadStep, bytes - at)), POSIX_FADV_WILLNEED);
}

void start_writing(int fd, std::uint64_t offset, std::uint64_t bytes) {
  ::sync_file_range(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                    SYNC_FILE_RANGE_WRITE);
}

bool reserve(int fd, std::uint64_t bytes) {
  const auto size = static_cast<off_t>(bytes);
  // Not posix_fallocate(): if the file system cannot reserve, that function writes to every block.
  if (retry([&] { return ::fallocate(fd, 0, 0, size); }) == 0) return true;
  if (errno != EOPNOTSUPP && errno != ENOSYS) return false;
  return retry([&] { return ::ftruncate(fd, size); }) == 0;
}

Range next_data(int fd, std::uint64_t from) {
  constexpr Range kNone = {std::numeric_limits<std::uint64_t>::max(),
                           std::numeric_limits<std::uint64_t>::max()};
  const off_t begin = ::lseek(fd, static_cast<off_t>(from), SEEK_DATA);
  if (begin >= 0) {
    const off_t end = ::lseek(fd, begin, SEEK_HOLE);
    return {static_cast<std::uint64_t>(begin),
            end > begin ? static_cast<std::uint64_t>(end) : kNone.end};
  }
  if (errno == ENXIO) return kNone;
  const std::optional<FileStatus> status = status_of(fd);
  return status && from < status->bytes ? Range{from, status->bytes} : kNone;
}

bool sync(int fd) {
  return retry([&] { return ::fsync(fd); }) == 0;
}

bool sync_folder(int fd) {
  // Some network file systems cannot sync a folder. Their renames are durable anyway, or never.
  return sync(fd) || errno == EINVAL || errno == ENOTSUP;
}

const bool kSyncsFileSystems = true;
bool sync_file_system(int fd) { return ::syncfs(fd) == 0; }

bool remove_file(const std::filesystem::path& path) { return ::unlink(path.c_str()) == 0; }

bool replace_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  return ::rename(from.c_str(), to.c_str()) == 0;
}

bool link_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  return ::link(from.c_str(), to.c_str()) == 0;
}

bool may_write_in(const std::filesystem::path& folder) {
  return ::access(folder.c_str(), W_OK) == 0;
}

bool lock(int fd) {
  return retry([&] { return ::flock(fd, LOCK_EX | LOCK_NB); }) == 0;
}

bool lock_folder(int fd, bool shared) {
  return retry([&] { return ::flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB); }) == 0;
}

const std::byte* map(int fd, std::uint64_t bytes) {
  void* const start = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  return start == MAP_FAILED ? nullptr : static_cast<const std::byte*>(start);
}

void unmap(const std::byte* start, std::uint64_t bytes) {
  ::munmap(const_cast<std::byte*>(start), bytes);
}

}  // namespace nvfp4::platform
