#include "checkpoint/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTextBytes = 256'000'000;

[[noreturn]] void fail(const char* what, const fs::path& path) {
  throw IoError(fmt::format("{}: cannot {}: {}", path.string(), what, std::strerror(errno)));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::size_t read_some(int fd, char* out, std::size_t n, const fs::path& path) {
  for (;;) {
    const ssize_t got = ::read(fd, out, n);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) fail("read", path);
  }
}

void write_all(int fd, const char* data, std::size_t n, const fs::path& path) {
  while (n > 0) {
    const ssize_t put = ::write(fd, data, n);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("write", path);
    data += put;
    n -= static_cast<std::size_t>(put);
  }
}

/// Removes a temporary file unless it was renamed.
struct Temporary {
  fs::path path;
  bool armed = true;
  ~Temporary() {
    if (armed) ::unlink(path.c_str());
  }
};

}  // namespace

std::string read_text_file(const fs::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) fail("open", path);
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (const std::size_t n = read_some(fd.get(), buffer.data(), buffer.size(), path)) {
    text.append(buffer.data(), n);
    require<FormatError>(text.size() <= kMaxTextBytes, "{}: larger than {} bytes", path.string(),
                         kMaxTextBytes);
  }
  return text;
}

std::uint64_t fingerprint(std::string_view text, std::uint64_t seed) {
  for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return seed;
}

void copy_file_atomically(const fs::path& from, const fs::path& to) {
  const Descriptor in(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (in.get() < 0) fail("open", from);
  struct stat status {};
  if (::fstat(in.get(), &status) != 0) fail("stat", from);
  Temporary temporary{fs::path(to.string() + ".partial")};
  const mode_t mode = (status.st_mode & 0777) | S_IRUSR | S_IWUSR;
  Descriptor out(
      ::open(temporary.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (out.get() < 0) {
    temporary.armed = false;
    fail("create", temporary.path);
  }
  std::vector<char> buffer(1 << 20);
  while (const std::size_t n = read_some(in.get(), buffer.data(), buffer.size(), from))
    write_all(out.get(), buffer.data(), n, temporary.path);
  if (::fsync(out.get()) != 0) fail("sync", temporary.path);
  if (::close(out.release()) != 0) fail("close", temporary.path);
  if (::rename(temporary.path.c_str(), to.c_str()) != 0) fail("rename", temporary.path);
  temporary.armed = false;
}

void sync_folder(const fs::path& folder) {
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) fail("open", folder);
  // Some network file systems cannot sync a folder; their renames are durable or nothing is.
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP) fail("sync", folder);
}

}  // namespace nvfp4::checkpoint
