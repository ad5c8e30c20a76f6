#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <utility>

#include "checkpoint/posix_file.h"
#include "checkpoint/printable.h"
#include "checkpoint/safetensors_header.h"
#include "core/require.h"

namespace nvfp4::safetensors {
namespace {

std::int64_t modified_ns_of(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

/// Read-only pages of a file.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, std::uint64_t bytes, const std::filesystem::path& path) : bytes_(bytes) {
    void* const start = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (start == MAP_FAILED) throw_io_error(path, "map", errno);
    start_ = start;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (start_) ::munmap(start_, bytes_);
  }
  const std::byte* data() const { return static_cast<const std::byte*>(start_); }

 private:
  void* start_ = nullptr;
  std::uint64_t bytes_ = 0;
};

Descriptor open_to_read(const std::filesystem::path& path) {
  // Without O_NONBLOCK a pipe would hold us until somebody writes to it.
  Descriptor fd;
  do {
    fd = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  } while (fd.get() < 0 && errno == EINTR);
  if (fd.get() < 0) throw_io_error(path, "open", errno);
  return fd;
}

/// The length bytes and the header, copied: another process may shorten the file while we parse,
/// and touching a map of it would then be a bus error.
std::vector<std::byte> read_start(int fd, const std::filesystem::path& path, std::uint64_t bytes) {
  std::vector<std::byte> start(std::min(bytes, kLengthBytes));
  read_at(fd, path, 0, start);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < start.size(); ++i)
    length |= std::to_integer<std::uint64_t>(start[i]) << (8 * i);
  // A length that parse_header will refuse is not worth reading.
  if (start.size() < kLengthBytes || length > kMaxHeaderBytes || length > bytes - kLengthBytes)
    return start;
  start.resize(kLengthBytes + length);
  read_at(fd, path, kLengthBytes, std::span(start).subspan(kLengthBytes));
  return start;
}

}  // namespace

struct File::Impl {
  explicit Impl(std::filesystem::path file) : path(std::move(file)), fd(open_to_read(path)) {
    if (::fstat(fd.get(), &status) != 0) throw_io_error(path, "stat", errno);
    require<IoError>(S_ISREG(status.st_mode), "{}: {}, must be a regular file",
                     printable(path.native(), 4096),
                     S_ISDIR(status.st_mode) ? "a folder" : "a pipe, socket or device");
    bytes = static_cast<std::uint64_t>(status.st_size);
    header = parse_header(read_start(fd.get(), path, bytes), bytes, path.native());
    mapping.emplace(fd.get(), bytes, path);

    by_name.resize(header.tensors.size());
    std::iota(by_name.begin(), by_name.end(), std::size_t{0});
    std::sort(by_name.begin(), by_name.end(),
              [&](std::size_t a, std::size_t b) { return name(a) < name(b); });
  }

  const std::string& name(std::size_t i) const { return header.tensors[i].name; }

  /// Guards against the description of another file's tensor.
  void check_range(const TensorInfo& t, std::uint64_t offset, std::uint64_t size) const {
    const bool inside = t.begin >= header.data_begin && t.begin <= bytes &&
                        t.bytes <= bytes - t.begin && offset <= t.bytes && size <= t.bytes - offset;
    if (!inside)
      throw ValueError(fmt::format("{}: tensor '{}': {} bytes at {}, must lie within its {} bytes",
                                   printable(path.native(), 4096), printable(t.name), size, offset,
                                   t.bytes));
  }

  std::filesystem::path path;
  Descriptor fd;
  struct stat status {};
  std::uint64_t bytes = 0;
  Header header;
  std::optional<Mapping> mapping;
  std::vector<std::size_t> by_name;  // positions in header.tensors, sorted by name
};

File::File(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;
File::~File() = default;

File File::open(const std::filesystem::path& path) { return File(std::make_unique<Impl>(path)); }

const std::filesystem::path& File::path() const { return impl_->path; }
const Metadata& File::metadata() const { return impl_->header.metadata; }
const std::vector<TensorInfo>& File::tensors() const { return impl_->header.tensors; }
std::uint64_t File::file_bytes() const { return impl_->bytes; }
std::int64_t File::modified_ns() const { return modified_ns_of(impl_->status); }

const TensorInfo* File::find(std::string_view name) const {
  const auto& order = impl_->by_name;
  const auto found = std::lower_bound(
      order.begin(), order.end(), name,
      [&](std::size_t i, std::string_view wanted) { return impl_->name(i) < wanted; });
  if (found == order.end() || impl_->name(*found) != name) return nullptr;
  return &impl_->header.tensors[*found];
}

std::span<const std::byte> File::data(const TensorInfo& tensor) const {
  impl_->check_range(tensor, 0, tensor.bytes);
  return {impl_->mapping->data() + tensor.begin, tensor.bytes};
}

void File::read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const {
  impl_->check_range(tensor, offset, out.size());
  try {
    read_at(impl_->fd.get(), impl_->path, tensor.begin + offset, out);
  } catch (const IoError& error) {
    throw IoError(fmt::format("{} (tensor '{}')", error.what(), printable(tensor.name)));
  }
}

void File::check_unchanged() const {
  struct stat now {};
  if (::stat(impl_->path.c_str(), &now) != 0) throw_io_error(impl_->path, "stat", errno);
  const struct stat& then = impl_->status;
  const std::string file = printable(impl_->path.native(), 4096);
  require<IoError>(now.st_dev == then.st_dev && now.st_ino == then.st_ino,
                   "{}: was replaced by another file since it was opened", file);
  require<IoError>(now.st_size == then.st_size, "{}: has {} bytes, must still have {}", file,
                   now.st_size, then.st_size);
  require<IoError>(modified_ns_of(now) == modified_ns_of(then),
                   "{}: was modified since it was opened", file);
}

}  // namespace nvfp4::safetensors
