#include "checkpoint/source/content.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "checkpoint/io/text_file.h"

namespace nvfp4::checkpoint {
namespace {

std::uint64_t start_of(std::uint64_t bytes, const safetensors::Metadata& metadata,
                       std::uint64_t hash) {
  hash = fingerprint(fmt::format("{}", bytes), hash);
  for (const auto& [key, value] : metadata)
    hash = fingerprint(fmt::format("{} {}{}", key.size(), key, value), hash);
  return hash;
}

/// Adds a TensorInfo or a TensorSpec to the hash.
std::uint64_t add_tensor(const auto& t, std::uint64_t begin, const std::string& sample,
                         std::uint64_t hash) {
  hash = fingerprint(t.name, hash);
  hash = fingerprint(
      fmt::format("{} {} {}", safetensors::dtype_name(t.dtype), begin, fmt::join(t.shape, ",")),
      hash);
  return fingerprint(sample, hash);
}

/// Returns the hash of a file. `samples` has one text for each tensor, or is empty.
std::uint64_t content_of(const TensorFile& file, std::uint64_t hash,
                         const std::vector<std::string>& samples) {
  hash = start_of(file.file_bytes(), file.metadata(), hash);
  for (std::size_t i = 0; i < file.tensors().size(); ++i)
    hash = add_tensor(file.tensors()[i], file.tensors()[i].begin, samples.empty() ? "" : samples[i],
                      hash);
  return hash;
}

std::vector<std::string> samples_of(const TensorFile& file) {
  std::vector<std::string> samples;
  for (const auto& t : file.tensors()) samples.push_back(sample_of(file, t));
  return samples;
}

std::string sample(std::uint64_t bytes, const auto& read) {
  constexpr std::uint64_t kSample = 64;
  std::string sample(std::min(bytes, kSample), '\0');
  read((bytes - sample.size()) / 2, std::as_writable_bytes(std::span(sample)));
  return sample;
}

}  // namespace

std::string hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

std::string sample_of(const TensorFile& file, const safetensors::TensorInfo& tensor) {
  return sample(tensor.bytes, [&](std::uint64_t offset, std::span<std::byte> out) {
    file.read(tensor, offset, out);
  });
}

std::uint64_t content_of(const InputFile& file, std::size_t count,
                         const std::function<safetensors::TensorSpec(std::size_t)>& spec_of,
                         const safetensors::Metadata& metadata) {
  std::array<std::byte, 8> length{};
  file.read(0, length);
  std::uint64_t begin = length.size();
  for (std::size_t i = 0; i < length.size(); ++i)
    begin += std::to_integer<std::uint64_t>(length[i]) << (8 * i);
  std::uint64_t hash = start_of(file.bytes(), metadata, fingerprint(""));
  for (std::size_t i = 0; i < count; ++i) {
    const safetensors::TensorSpec spec = spec_of(i);
    auto bits = static_cast<std::uint64_t>(safetensors::dtype_bits(spec.dtype));
    for (const std::int64_t extent : spec.shape) bits *= static_cast<std::uint64_t>(extent);
    const auto read = [&](std::uint64_t offset, std::span<std::byte> out) {
      file.read(begin + offset, out);
    };
    hash = add_tensor(spec, begin, sample(bits / 8, read), hash);
    begin += bits / 8;
  }
  return hash;
}

std::uint64_t content_of(const TensorFile& file) {
  return content_of(file, fingerprint(""), samples_of(file));
}

std::uint64_t content_of(const ModelFolder& model) {
  std::vector<std::vector<std::string>> samples(model.files.size());
  read_together(samples.size(), [&](std::size_t f) { samples[f] = samples_of(model.files[f]); });
  std::uint64_t hash = fingerprint("");
  for (std::size_t f = 0; f < model.files.size(); ++f)
    hash = content_of(model.files[f], fingerprint(model.file_names[f], hash), samples[f]);
  return hash;
}

std::vector<int> share_out(const std::vector<std::uint64_t>& sizes, int ranks) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) { return sizes[i]; });
  using Given = std::pair<std::uint64_t, int>;  // bytes, rank
  std::priority_queue<Given, std::vector<Given>, std::greater<>> given;
  for (int rank = 0; rank < ranks; ++rank) given.emplace(0, rank);
  std::vector<int> rank_of(sizes.size());
  for (const std::size_t i : order) {
    const auto [bytes, rank] = given.top();
    given.pop();
    given.emplace(bytes + sizes[i], rank);
    rank_of[i] = rank;
  }
  return rank_of;
}

}  // namespace nvfp4::checkpoint
