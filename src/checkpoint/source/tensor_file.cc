#include "checkpoint/io/tensor_file.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "checkpoint/gguf/view.h"
#include "checkpoint/io/input_hints.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

class SafetensorsSource final : public TensorSource {
 public:
  explicit SafetensorsSource(const std::filesystem::path& path)
      : file_(safetensors::File::open(path)) {}
  const std::filesystem::path& path() const override { return file_.path(); }
  const safetensors::Metadata& metadata() const override { return file_.metadata(); }
  const std::vector<safetensors::TensorInfo>& tensors() const override { return file_.tensors(); }
  const safetensors::TensorInfo* find(std::string_view name) const override {
    return file_.find(name);
  }
  void read(const safetensors::TensorInfo& tensor, std::uint64_t offset,
            std::span<std::byte> out) const override {
    file_.read(tensor, offset, out);
  }
  void will_read(const safetensors::TensorInfo& tensor, std::uint64_t offset,
                 std::uint64_t bytes) const override {
    file_.will_read(tensor, offset, bytes);
  }
  std::span<const std::byte> data(const safetensors::TensorInfo& tensor) const override {
    return file_.data(tensor);
  }
  void check_unchanged() const override { file_.check_unchanged(); }
  std::uint64_t file_bytes() const override { return file_.file_bytes(); }
  std::int64_t modified_ns() const override { return file_.modified_ns(); }
  std::string_view container() const override { return "safetensors"; }

 private:
  safetensors::File file_;
};

/// A file whose header is there before its values are.
class LateSource final : public TensorSource {
 public:
  explicit LateSource(std::unique_ptr<const TensorSource> start) : start_(std::move(start)) {}
  const std::filesystem::path& path() const override { return start_->path(); }
  const safetensors::Metadata& metadata() const override { return start_->metadata(); }
  const std::vector<safetensors::TensorInfo>& tensors() const override { return start_->tensors(); }
  const safetensors::TensorInfo* find(std::string_view name) const override {
    return start_->find(name);
  }
  void read(const safetensors::TensorInfo& tensor, std::uint64_t offset,
            std::span<std::byte> out) const override {
    whole().read(tensor, offset, out);
  }
  void will_read(const safetensors::TensorInfo& tensor, std::uint64_t offset,
                 std::uint64_t bytes) const override {
    if (const auto file = now()) file->will_read(tensor, offset, bytes);
  }
  std::span<const std::byte> data(const safetensors::TensorInfo& tensor) const override {
    return whole().data(tensor);
  }
  void check_unchanged() const override {
    const std::lock_guard lock(mutex_);  // it does not leave meanwhile
    if (whole_) whole_->check_unchanged();
  }
  std::uint64_t file_bytes() const override { return start_->file_bytes(); }
  std::int64_t modified_ns() const override { return start_->modified_ns(); }
  std::string_view container() const override { return start_->container(); }

  void arrive() const override {
    auto file = std::make_shared<const SafetensorsSource>(path());
    const bool same =
        file->file_bytes() == file_bytes() &&
        std::ranges::equal(file->tensors(), tensors(), [](const auto& a, const auto& b) {
          return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape &&
                 a.begin == b.begin && a.bytes == b.bytes;
        });
    require<FormatError>(same, "{}: the file that arrived is not the one whose header was read",
                         path().string());
    const std::lock_guard lock(mutex_);
    whole_ = std::move(file);
  }
  void leave() const override {
    const std::lock_guard lock(mutex_);
    if (whole_) whole_->check_unchanged();
    whole_.reset();
  }

 private:
  std::shared_ptr<const SafetensorsSource> now() const {
    const std::lock_guard lock(mutex_);
    return whole_;
  }
  const SafetensorsSource& whole() const {
    const auto file = now();
    require<IoError>(file != nullptr, "{}: read while it is not there", path().string());
    return *file;  // leave() comes after the last read
  }

  std::unique_ptr<const TensorSource> start_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const SafetensorsSource> whole_;
};

}  // namespace

bool is_gguf_name(const std::filesystem::path& path) { return path.extension() == ".gguf"; }

TensorFile TensorFile::open(const std::filesystem::path& path) {
  require_no_lfs_pointer(path);
  if (is_gguf_name(path)) return TensorFile(gguf::open_view(path, gguf::Naming::model));
  return TensorFile(std::make_unique<SafetensorsSource>(path));
}

void TensorFile::supply_later() { source_ = std::make_unique<LateSource>(std::move(source_)); }

}  // namespace nvfp4::checkpoint
