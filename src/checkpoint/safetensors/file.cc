#include <algorithm>
#include <cerrno>
#include <mutex>
#include <numeric>
#include <utility>

#include "checkpoint/io/planned_file.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/safetensors/header.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::safetensors {
namespace {

/// A read-only memory map of a file.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, std::uint64_t bytes, const std::filesystem::path& path) : bytes_(bytes) {
    start_ = platform::map(fd, bytes);
    if (start_ == nullptr) throw_io_error(path, "map", errno);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (start_) platform::unmap(start_, bytes_);
  }
  const std::byte* data() const { return start_; }

 private:
  const std::byte* start_ = nullptr;
  std::uint64_t bytes_ = 0;
};

/// Returns a copy of the length bytes and the header. Another process may shorten the file during
/// parsing, and an access to its map would then be a bus error.
std::vector<std::byte> read_start(const InputFile& file) {
  const std::uint64_t bytes = file.bytes();
  std::vector<std::byte> start(std::min(bytes, kLengthBytes));
  file.read(0, start);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < start.size(); ++i)
    length |= std::to_integer<std::uint64_t>(start[i]) << (8 * i);
  // A length that parse_header() rejects is not read.
  if (start.size() < kLengthBytes || length > kMaxHeaderBytes || length > bytes - kLengthBytes)
    return start;
  start.resize(kLengthBytes + length);
  file.read(kLengthBytes, std::span(start).subspan(kLengthBytes));
  return start;
}

}  // namespace

struct File::Impl {
  explicit Impl(std::filesystem::path path)
      : file(std::move(path)),
        header(parse_header(read_start(file), file.bytes(), name_of_file())) {
    mapping.emplace(file.descriptor(), file.bytes(), file.path());
  }

  std::string name_of_file() const { return file.path().string(); }
  const std::string& name(std::size_t i) const { return header.tensors[i].name; }

  /// Returns the positions in header.tensors, sorted by name. They are sorted at the first call,
  /// since most readers never need them.
  const std::vector<std::size_t>& by_name() const {
    std::call_once(sorted_, [this] {
      by_name_.resize(header.tensors.size());
      std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
      std::ranges::sort(by_name_, {}, [this](std::size_t i) { return std::string_view(name(i)); });
    });
    return by_name_;
  }

  /// Throws ValueError if the range is not in the tensor, for instance for the TensorInfo of
  /// another file.
  void check_range(const TensorInfo& t, std::uint64_t offset, std::uint64_t size) const {
    const bool inside = t.begin >= header.data_begin && t.begin <= file.bytes() &&
                        t.bytes <= file.bytes() - t.begin && offset <= t.bytes &&
                        size <= t.bytes - offset;
    if (!inside)
      throw ValueError(fmt::format("{}: tensor '{}': {} bytes at {}, must lie within its {} bytes",
                                   printable(name_of_file(), 4096), printable(t.name), size, offset,
                                   t.bytes));
  }

  InputFile file;
  Header header;
  std::optional<Mapping> mapping;

 private:
  mutable std::once_flag sorted_;
  mutable std::vector<std::size_t> by_name_;
};

File::File(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;
File::~File() = default;

File File::open(const std::filesystem::path& path) { return File(std::make_unique<Impl>(path)); }

const std::filesystem::path& File::path() const { return impl_->file.path(); }
const Metadata& File::metadata() const { return impl_->header.metadata; }
const std::vector<TensorInfo>& File::tensors() const { return impl_->header.tensors; }
std::uint64_t File::file_bytes() const { return impl_->file.bytes(); }
std::int64_t File::modified_ns() const { return impl_->file.modified_ns(); }

const TensorInfo* File::find(std::string_view name) const {
  const auto& order = impl_->by_name();
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
    impl_->file.read(tensor.begin + offset, out);
  } catch (const IoError& error) {
    throw IoError(fmt::format("{} (tensor '{}')", error.what(), printable(tensor.name)),
                  error.code);
  }
}

void File::will_read(const TensorInfo& tensor, std::uint64_t offset, std::uint64_t bytes) const {
  impl_->check_range(tensor, offset, bytes);
  impl_->file.will_read(tensor.begin + offset, bytes);
}

void File::check_unchanged() const { impl_->file.check_unchanged(); }

struct Writer::Impl {
  Impl(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
       const Metadata& metadata)
      : specs(tensors),
        metadata(metadata),
        file(path, FilePlan(
                       specs.size(), [this](std::size_t i) { return specs[i]; }, this->metadata,
                       name_of_file(path))) {}

  std::vector<TensorSpec> specs;
  Metadata metadata;
  PlannedFile<FilePlan> file;
};

// NOLINTNEXTLINE(performance-unnecessary-value-param): once a file
Writer::Writer(std::filesystem::path path, const std::vector<TensorSpec>& tensors,
               const Metadata& metadata)
    : impl_(std::make_unique<Impl>(path, tensors, metadata)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

std::uint64_t Writer::file_bytes() const { return impl_->file.file_bytes(); }
void Writer::write(std::size_t index, std::uint64_t offset, std::span<const std::byte> data) {
  impl_->file.write(index, offset, data);
}
void Writer::commit() { impl_->file.commit(); }

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  PartialFile file(path);
  file.reserve(content.size());
  file.write_at(0, std::as_bytes(std::span(content)));
  file.commit();
}

}  // namespace nvfp4::safetensors
