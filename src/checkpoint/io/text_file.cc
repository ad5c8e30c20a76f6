#include "checkpoint/io/text_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>

#include "checkpoint/io/posix_file.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTextBytes = 256'000'000;

using platform::Open;

/// Returns the number of bytes read, or 0 at the end of the file.
std::size_t read_some(const Descriptor& fd, std::span<char> out, const fs::path& path) {
  const std::ptrdiff_t n = platform::read(fd.get(), out.data(), out.size());
  if (n < 0) throw_io_error(path, "read", errno);
  return static_cast<std::size_t>(n);
}

Descriptor open_with(const fs::path& path, Open how = Open::read) {
  Descriptor fd = platform::open(path, how);
  if (fd.get() < 0) throw_io_error(path, "open", errno);
  return fd;
}

platform::FileStatus status_of(const Descriptor& fd, const fs::path& path, const char* what) {
  const std::optional<platform::FileStatus> status = platform::status_of(fd.get());
  if (!status) throw_io_error(path, what, errno);
  return *status;
}

Descriptor open_regular_file(const fs::path& path) {
  Descriptor fd = open_with(path, Open::read_promptly);
  require<IoError>(status_of(fd, path, "read the type of").kind == platform::FileStatus::Kind::file,
                   ErrorCode::not_a_file, "{}: must be a regular file", path.string());
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
  const platform::FileStatus status = status_of(in, from, "read the status of");
  std::vector<std::byte> buffer(1 << 20);
  std::uint64_t at = 0;
  for (platform::Range data; (data = platform::next_data(in.get(), at)).begin < status.bytes;) {
    const std::uint64_t end = std::min(data.end, status.bytes);
    for (at = data.begin; at < end;) {
      const auto some = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), end - at));
      read_at(in.get(), from, at, some);
      out.write_at(at, some);
      at += some.size();
    }
  }
  if (at < status.bytes)
    out.write_at(status.bytes - 1, std::array<std::byte, 1>());  // The file ends in a hole.
  out.give_name();
  constexpr unsigned kOwnerMay = 0600;  // The owner may read and write.
  if (!platform::set_mode(to, status.mode | kOwnerMay))
    throw_io_error(to, "set the mode of", errno);
  return status.bytes;
}

void append_to_file(const fs::path& path, std::string_view text) {
  const Descriptor fd = open_with(path, Open::append);
  std::uint64_t end = status_of(fd, path, "read the size of").bytes;
  while (!text.empty()) {
    const std::ptrdiff_t n = platform::write_at(fd.get(), text.data(), text.size(), end);
    if (n < 0) throw_io_error(path, "write", errno);
    end += static_cast<std::uint64_t>(n);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (!platform::sync(fd.get())) throw_io_error(path, "sync", errno);
}

std::size_t sync_files(const fs::path& folder, const std::vector<fs::path>& files) {
  constexpr std::size_t kOneByOne = 64;
  const bool by_system = platform::kSyncsFileSystems && files.size() > kOneByOne;
  // There are several file systems only if something is mounted below the folder.
  std::map<std::uint64_t, fs::path> systems;  // keyed by volume
  for (const fs::path& file : files) {
    const fs::path path = folder / file;
    if (by_system) {
      const std::optional<platform::FileStatus> status = platform::status_of(path);
      if (!status) throw_io_error(path, "sync", errno);
      systems.try_emplace(status->volume, path);
      continue;
    }
    const Descriptor fd = open_with(path, Open::sync);
    if (!platform::sync(fd.get())) throw_io_error(path, "sync", errno);
  }
  for (const auto& [volume, path] : systems) {
    const Descriptor fd = open_with(path, Open::sync);
    if (!platform::sync_file_system(fd.get()))
      throw_io_error(path, "sync the file system of", errno);
  }
  return by_system ? systems.size() : files.size();
}

void sync_folder(const fs::path& folder) {
  const Descriptor fd = open_with(folder, Open::folder);
  if (!platform::sync_folder(fd.get())) throw_io_error(folder, "sync", errno);
}

}  // namespace nvfp4::checkpoint
