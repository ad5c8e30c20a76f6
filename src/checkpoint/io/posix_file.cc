#include "checkpoint/io/posix_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <functional>
#include <mutex>
#include <system_error>

#include "checkpoint/io/printable.h"
#include "core/require.h"

namespace nvfp4 {
namespace {

// Linux moves at most 2 GiB - 4 KiB in a call; others refuse more than 2 GiB.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;
// Linux brings no more in a call than its read_ahead_kb, unless that is set, and drops the rest.
[[maybe_unused]] constexpr std::uint64_t kReadAheadStep = 128 << 10;
// Pieces of this size go to the disk at once, so that fsync has little left to wait for.
constexpr off_t kFlushFrom = 1 << 20;

/// Repeats a system call that a signal interrupted.
template <class Call>
auto retry(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result == -1 && errno == EINTR);
  return result;
}

constexpr std::string_view kPartial = ".partial";

bool is_of_tag(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-'; }

/// ".<host>-<process>-<8 digits>"
bool is_tag(std::string_view text) {
  constexpr std::size_t kDigits = 8;
  return text.starts_with('.') && std::ranges::count(text, '-') >= 2 &&
         text.size() - text.rfind('-') == kDigits + 1 &&
         std::ranges::all_of(text.substr(1), is_of_tag);
}

/// Folders below which partial files are tagged.
struct TaggedFolders {
  std::mutex mutex;
  std::multiset<std::filesystem::path> all;
};

TaggedFolders& tagged_folders() {
  static TaggedFolders folders;
  return folders;
}

/// The number, as several machines may have one name.
std::string process_tag() {
  // Not std::random_device: libstdc++'s wants arc4random(), which glibc has from 2.36 on.
  static const unsigned number = [] {
    unsigned random = 0;
    if (::getentropy(&random, sizeof random) == 0) return random;
    return static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
  }();
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  std::string tag = fmt::format("{}-{}-{:08x}", host, ::getpid(), number);
  std::ranges::replace_if(tag, std::not_fn(is_of_tag), '-');
  return fmt::format(".{}", tag);
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  const auto parent = path.parent_path();
  return parent.empty() ? "." : parent;
}

std::int64_t modified_ns_of(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

Descriptor open_to_read(const std::filesystem::path& path) {
  // Without O_NONBLOCK a pipe would hold us until somebody writes to it.
  Descriptor fd(retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (fd.get() < 0) throw_io_error(path, "open", errno);
  return fd;
}

}  // namespace

void throw_io_error(const std::filesystem::path& path, const std::string& action, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw IoError(fmt::format("{}: cannot {}: {}{}", printable(path.native(), 4096), action,
                            full ? "disk full: " : "", std::generic_category().message(error)));
}

void throw_io_error(const std::filesystem::filesystem_error& error) {
  // "filesystem error: cannot create directories: Permission denied [a/b]"
  constexpr std::string_view kPrefix = "filesystem error: ";
  const std::string reason = error.code().message();
  std::string_view what = error.what();
  if (what.starts_with(kPrefix)) what.remove_prefix(kPrefix.size());
  what = what.substr(0, what.find(": " + reason));
  const std::string path = printable(error.path1().native(), 4096);
  throw IoError(fmt::format("{}{}{}: {}", path, path.empty() ? "" : ": ", what, reason));
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void read_at(int fd, const std::filesystem::path& path, std::uint64_t offset,
             std::span<std::byte> out) {
  const std::uint64_t end = offset + out.size();
  while (!out.empty()) {
    const ssize_t n = retry([&] {
      return ::pread(fd, out.data(), std::min(out.size(), kMaxTransfer),
                     static_cast<off_t>(offset));
    });
    if (n < 0) throw_io_error(path, "read", errno);
    require<IoError>(n > 0, "{}: became shorter: ends at byte {}, must have {}",
                     printable(path.native(), 4096), offset, end);
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), fd_(open_to_read(path_)) {
  if (::fstat(fd_.get(), &status_) != 0) throw_io_error(path_, "stat", errno);
  require<IoError>(S_ISREG(status_.st_mode), "{}: {}, must be a regular file",
                   printable(path_.native(), 4096),
                   S_ISDIR(status_.st_mode) ? "a folder" : "a pipe, socket or device");
}

std::int64_t InputFile::modified_ns() const { return modified_ns_of(status_); }

void InputFile::will_read([[maybe_unused]] std::uint64_t offset,
                          [[maybe_unused]] std::uint64_t bytes) const {
#ifdef __linux__
  std::byte first{};
  iovec where{&first, 1};
  // In memory already: the others are taken to be, too.
  if (bytes == 0 || ::preadv2(fd_.get(), &where, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1)
    return;
  for (std::uint64_t at = 0; at < bytes; at += kReadAheadStep)
    ::posix_fadvise(fd_.get(), static_cast<off_t>(offset + at),
                    static_cast<off_t>(std::min(kReadAheadStep, bytes - at)), POSIX_FADV_WILLNEED);
#endif
}

void InputFile::check_unchanged() const {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) throw_io_error(path_, "stat", errno);
  const struct stat& then = status_;
  const std::string file = printable(path_.native(), 4096);
  require<IoError>(now.st_dev == then.st_dev && now.st_ino == then.st_ino,
                   "{}: was replaced by another file since it was opened", file);
  require<IoError>(now.st_size == then.st_size, "{}: has {} bytes, must still have {}", file,
                   now.st_size, then.st_size);
  require<IoError>(modified_ns_of(now) == modified_ns_of(then),
                   "{}: was modified since it was opened", file);
}

std::filesystem::path partial_path(std::filesystem::path path) {
  TaggedFolders& folders = tagged_folders();
  const std::lock_guard lock(folders.mutex);
  const bool tagged = std::ranges::any_of(folders.all, [&](const auto& folder) {
    return std::ranges::mismatch(folder, path).in1 == folder.end();
  });
  if (tagged) path += process_tag();
  return path += kPartial;
}

PartialTag::PartialTag(std::filesystem::path folder)
    : folder_(folder.has_filename() ? std::move(folder) : folder.parent_path()) {
  const std::lock_guard lock(tagged_folders().mutex);
  tagged_folders().all.insert(folder_);
}

PartialTag::~PartialTag() {
  const std::lock_guard lock(tagged_folders().mutex);
  tagged_folders().all.erase(tagged_folders().all.find(folder_));
}

void remove_partials(const std::filesystem::path& folder, const std::set<std::string>& names) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    if (!name.ends_with(kPartial)) continue;
    name.resize(name.size() - kPartial.size());
    const std::size_t dot = name.rfind('.');
    const bool tagged = dot != std::string::npos && is_tag(std::string_view(name).substr(dot));
    if (names.contains(name) || (tagged && names.contains(name.substr(0, dot))))
      std::filesystem::remove(entry.path());
  }
}

PartialFile::PartialFile(std::filesystem::path path)
    : path_(std::move(path)), partial_(partial_path(path_)) {
  // A new inode, never through a link that waits under this name.
  if (::unlink(partial_.c_str()) != 0 && errno != ENOENT)
    throw_io_error(partial_, "remove the stale file", errno);
  fd_ = Descriptor(retry(
      [&] { return ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); }));
  if (fd_.get() < 0) throw_io_error(partial_, "create", errno);
}

PartialFile::~PartialFile() {
  if (!committed_) ::unlink(partial_.c_str());
}

void PartialFile::reserve(std::uint64_t bytes) {
  if (bytes == 0) return;
  const auto size = static_cast<off_t>(bytes);
  const std::string action = fmt::format("reserve {} bytes", bytes);
#ifdef __linux__
  // Not posix_fallocate: where the file system cannot, that one writes to every block.
  if (retry([&] { return ::fallocate(fd_.get(), 0, 0, size); }) == 0) return;
  if (errno != EOPNOTSUPP && errno != ENOSYS) throw_io_error(partial_, action, errno);
#endif
  if (retry([&] { return ::ftruncate(fd_.get(), size); }) != 0)
    throw_io_error(partial_, action, errno);
}

void PartialFile::write_at(std::uint64_t offset, std::span<const std::byte> data) {
  [[maybe_unused]] const auto begin = static_cast<off_t>(offset);
  [[maybe_unused]] const auto bytes = static_cast<off_t>(data.size());
  while (!data.empty()) {
    const ssize_t n = retry([&] {
      return ::pwrite(fd_.get(), data.data(), std::min(data.size(), kMaxTransfer),
                      static_cast<off_t>(offset));
    });
    if (n < 0) throw_io_error(partial_, "write", errno);
    offset += static_cast<std::uint64_t>(n);
    data = data.subspan(static_cast<std::size_t>(n));
  }
#ifdef __linux__
  // Only starts the transfer. A hint: what fails to reach the disk is reported by fsync.
  if (bytes >= kFlushFrom) ::sync_file_range(fd_.get(), begin, bytes, SYNC_FILE_RANGE_WRITE);
#endif
}

void PartialFile::commit() {
  if (retry([&] { return ::fsync(fd_.get()); }) != 0) throw_io_error(partial_, "fsync", errno);
  give_name();
  const auto folder = folder_of(path_);
  const Descriptor dir(
      retry([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (dir.get() < 0) throw_io_error(folder, "open", errno);
  // Some file systems cannot sync a folder and say EINVAL.
  if (retry([&] { return ::fsync(dir.get()); }) != 0 && errno != EINVAL)
    throw_io_error(folder, "fsync", errno);
}

void PartialFile::give_name() {
  // EINTR from close leaves the descriptor closed on Linux, and the data is on the disk.
  if (::close(fd_.release()) != 0 && errno != EINTR) throw_io_error(partial_, "close", errno);
  if (::rename(partial_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    throw_io_error(partial_, fmt::format("rename to {}", printable(path_.filename().native())),
                   error);
  }
  committed_ = true;
}

}  // namespace nvfp4
