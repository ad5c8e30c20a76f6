#include "checkpoint/io/tensor_file.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

std::string StoredTensor::describe() const {
  return fmt::format("{}: tensor '{}'", file->path().string(), printable(info->name));
}

TensorTable::TensorTable(const std::vector<TensorFile>& files) {
  for (const TensorFile& file : files)
    for (const safetensors::TensorInfo& info : file.tensors()) {
      const StoredTensor tensor{&file, &info};
      const bool fresh = add(tensor);
      require<FormatError>(fresh, "{} is in {} too", tensor.describe(),
                           fresh ? "" : find(info.name).file->path().string());
    }
}

bool TensorTable::add(const StoredTensor& tensor) {
  if (!by_name_.try_emplace(tensor.info->name, tensors_.size()).second) return false;
  tensors_.push_back(tensor);
  return true;
}

StoredTensor TensorTable::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? StoredTensor{} : tensors_[it->second];
}

}  // namespace nvfp4::checkpoint
