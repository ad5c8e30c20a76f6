#include <utility>

#include "checkpoint/io/planned_file.h"
#include "checkpoint/safetensors/header.h"

namespace nvfp4::safetensors {

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
