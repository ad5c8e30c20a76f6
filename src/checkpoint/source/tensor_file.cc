#include "checkpoint/io/tensor_file.h"

#include <memory>

#include "checkpoint/gguf/view.h"
#include "checkpoint/io/text_file.h"

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

}  // namespace

bool is_gguf_name(const std::filesystem::path& path) { return path.extension() == ".gguf"; }

TensorFile TensorFile::open(const std::filesystem::path& path) {
  require_no_lfs_pointer(path);
  if (is_gguf_name(path)) return TensorFile(gguf::open_view(path, gguf::Naming::model));
  return TensorFile(std::make_unique<SafetensorsSource>(path));
}

}  // namespace nvfp4::checkpoint
