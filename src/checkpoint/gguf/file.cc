#include "checkpoint/gguf/file.h"

#include <algorithm>
#include <numeric>

#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::gguf {
namespace {

ReadAt reader_of(const InputFile& input) {
  return [&input](std::uint64_t offset, std::span<std::byte> out) { input.read(offset, out); };
}

std::string name_of(const InputFile& input) { return printable(input.path().string(), 4096); }

}  // namespace

File::File(InputFile input, Header header) : input_(std::move(input)), header_(std::move(header)) {
  by_name_.resize(header_.tensors.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::ranges::sort(by_name_, {}, [this](std::size_t i) -> const std::string& {
    return header_.tensors[i].name;
  });
}

File File::open(const std::filesystem::path& path) {
  InputFile input(path);
  Header header = parse_header(reader_of(input), input.bytes(), name_of(input));
  return {std::move(input), std::move(header)};
}

const TensorInfo* File::find(std::string_view name) const {
  const auto name_at = [this](std::size_t i) -> std::string_view {
    return header_.tensors[i].name;
  };
  const auto it = std::ranges::lower_bound(by_name_, name, {}, name_at);
  return it == by_name_.end() || name_at(*it) != name ? nullptr : &header_.tensors[*it];
}

std::string File::raw(const Entry& entry) const {
  std::string bytes(entry.end - entry.begin, '\0');
  input_.read(entry.begin, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::vector<std::string> File::strings(std::string_view key, std::uint64_t most) const {
  const Value* value = header_.find(key);
  const auto* place = value == nullptr ? nullptr : std::get_if<ArrayPlace>(&value->value);
  if (place == nullptr) return {};
  require<FormatError>(place->count <= most, "{}: key '{}': an array of {}, at most {}",
                       name_of(input_), printable(key), place->count, most);
  return read_strings(reader_of(input_), input_.bytes(), *place, name_of(input_));
}

}  // namespace nvfp4::gguf
