#include <utility>

#include "checkpoint/coverage.h"
#include "checkpoint/posix_file.h"
#include "checkpoint/printable.h"
#include "checkpoint/safetensors_header.h"
#include "core/require.h"

namespace nvfp4::safetensors {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

struct Writer::Impl {
  Impl(std::filesystem::path path, const std::vector<TensorSpec>& specs, const Metadata& metadata)
      : name(printable(path.native(), 4096)),
        plan(plan_file(specs, metadata, name)),
        file(std::move(path)) {
    file.reserve(plan.file_bytes);
    file.write_at(0, bytes_of(plan.start));
  }

  std::string name;  // for messages
  FilePlan plan;
  PartialFile file;
  Coverage written;
};

Writer::Writer(std::filesystem::path path, const std::vector<TensorSpec>& tensors,
               const Metadata& metadata)
    : impl_(std::make_unique<Impl>(std::move(path), tensors, metadata)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

std::uint64_t Writer::file_bytes() const { return impl_->plan.file_bytes; }

void Writer::write(std::size_t index, std::uint64_t offset, std::span<const std::byte> data) {
  Impl& w = *impl_;
  require<ValueError>(!w.file.is_committed(), "{}: is committed, must not be written", w.name);
  require<ValueError>(index < w.plan.tensors.size(), "{}: tensor {}, must be less than {}", w.name,
                      index, w.plan.tensors.size());
  const TensorInfo& t = w.plan.tensors[index];
  if (offset > t.bytes || data.size() > t.bytes - offset)
    throw ValueError(fmt::format("{}: tensor '{}': {} bytes at {}, must lie within its {} bytes",
                                 w.name, printable(t.name), data.size(), offset, t.bytes));
  if (data.empty()) return;
  const std::uint64_t begin = t.begin + offset;
  w.file.write_at(begin, data);
  w.written.add(begin, begin + data.size());
}

void Writer::commit() {
  Impl& w = *impl_;
  require<ValueError>(!w.file.is_committed(), "{}: is committed already", w.name);
  for (const TensorInfo& t : w.plan.tensors) {
    const std::uint64_t missing = w.written.first_missing(t.begin, t.begin + t.bytes) - t.begin;
    if (missing != t.bytes)
      throw ValueError(fmt::format("{}: tensor '{}': byte {} of {} was never written", w.name,
                                   printable(t.name), missing, t.bytes));
  }
  w.file.commit();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  PartialFile file(path);
  file.reserve(content.size());
  file.write_at(0, bytes_of(content));
  file.commit();
}

}  // namespace nvfp4::safetensors
