#include "checkpoint/source/content.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/io/text_file.h"

namespace nvfp4::checkpoint {
namespace {

std::uint64_t content_of(const TensorFile& file, std::uint64_t hash) {
  hash = fingerprint(fmt::format("{}", file.file_bytes()), hash);
  for (const auto& [key, value] : file.metadata())
    hash = fingerprint(fmt::format("{} {}{}", key.size(), key, value), hash);
  for (const auto& t : file.tensors()) {
    hash = fingerprint(t.name, hash);
    hash = fingerprint(
        fmt::format("{} {} {}", safetensors::dtype_name(t.dtype), t.begin, fmt::join(t.shape, ",")),
        hash);
    hash = fingerprint(sample_of(file, t), hash);
  }
  return hash;
}

}  // namespace

std::string hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

std::string sample_of(const TensorFile& file, const safetensors::TensorInfo& tensor) {
  constexpr std::uint64_t kSample = 64;
  std::string sample(std::min(tensor.bytes, kSample), '\0');
  file.read(tensor, (tensor.bytes - sample.size()) / 2, std::as_writable_bytes(std::span(sample)));
  return sample;
}

std::uint64_t content_of(const TensorFile& file) { return content_of(file, fingerprint("")); }

std::uint64_t content_of(const ModelFolder& model) {
  std::uint64_t hash = fingerprint("");
  for (std::size_t f = 0; f < model.files.size(); ++f)
    hash = content_of(model.files[f], fingerprint(model.file_names[f], hash));
  return hash;
}

}  // namespace nvfp4::checkpoint
