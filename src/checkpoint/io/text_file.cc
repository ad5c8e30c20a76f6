#include "checkpoint/io/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "checkpoint/io/input_hints.h"
#include "checkpoint/io/posix_file.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTextBytes = 256'000'000;

/// 0 at the end of the file.
std::size_t read_some(const Descriptor& fd, std::span<char> out, const fs::path& path) {
  for (;;) {
    const ssize_t n = ::read(fd.get(), out.data(), out.size());
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) throw_io_error(path, "read", errno);
  }
}

Descriptor open_with(const fs::path& path, int flags = 0) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (fd.get() < 0) throw_io_error(path, "open", errno);
  return fd;
}

/// Without O_NONBLOCK a pipe would hold us until somebody writes to it.
Descriptor open_regular_file(const fs::path& path) {
  Descriptor fd = open_with(path, O_NONBLOCK);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw_io_error(path, "read the type of", errno);
  require<IoError>(S_ISREG(status.st_mode), "{}: must be a regular file", path.string());
  return fd;
}

std::string read_all(const Descriptor& fd, const fs::path& path) {
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (const std::size_t n = read_some(fd, buffer, path)) {
    text.append(buffer.data(), n);
    require<FormatError>(text.size() <= kMaxTextBytes, "{}: larger than {} bytes", path.string(),
                         kMaxTextBytes);
  }
  return text;
}

}  // namespace

std::string read_text_file(const fs::path& path) { return read_all(open_with(path), path); }

std::string read_model_text(const fs::path& path) {
  std::string text = read_all(open_regular_file(path), path);
  if (is_lfs_pointer(text)) throw_lfs_pointer(path);
  return text;
}

std::uint64_t fingerprint(std::string_view text, std::uint64_t seed) {
  for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return seed;
}

std::uint64_t carry_file(const fs::path& from, const fs::path& to) {
  const Descriptor in = open_regular_file(from);
  PartialFile out(to);
  std::vector<char> buffer(1 << 20);
  std::uint64_t offset = 0;
  while (const std::size_t n = read_some(in, buffer, from)) {
    out.write_at(offset, std::as_bytes(std::span(buffer.data(), n)));
    offset += n;
  }
  out.give_name();
  struct stat status {};
  if (::fstat(in.get(), &status) != 0) throw_io_error(from, "read the mode of", errno);
  const mode_t mode = (status.st_mode & 0777) | S_IRUSR | S_IWUSR;
  if (::chmod(to.c_str(), mode) != 0) throw_io_error(to, "set the mode of", errno);
  return offset;
}

std::size_t sync_files(const fs::path& folder, const std::vector<fs::path>& files) {
  constexpr std::size_t kOneByOne = 64;
  // More than the one file system only if something is mounted below the folder.
  std::map<dev_t, fs::path> systems;
  for (const fs::path& file : files) {
    const fs::path path = folder / file;
    struct stat status {};
    if (files.size() > kOneByOne) {
      if (::stat(path.c_str(), &status) != 0) throw_io_error(path, "sync", errno);
      systems.try_emplace(status.st_dev, path);
      continue;
    }
    const Descriptor fd = open_with(path);
    if (::fsync(fd.get()) != 0) throw_io_error(path, "sync", errno);
  }
  for (const auto& [device, path] : systems) {
    const Descriptor fd = open_with(path);
    if (::syncfs(fd.get()) != 0) throw_io_error(path, "sync the file system of", errno);
  }
  return files.size() > kOneByOne ? systems.size() : files.size();
}

void sync_folder(const fs::path& folder) {
  const Descriptor fd = open_with(folder, O_DIRECTORY);
  // Some network file systems cannot sync a folder; their renames are durable or nothing is.
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
    throw_io_error(folder, "sync", errno);
}

}  // namespace nvfp4::checkpoint
