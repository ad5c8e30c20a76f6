#pragma once

#include "checkpoint/gguf/header.h"
#include "testing.h"

/// GGUF files byte by byte, right or wrong.
namespace nvfp4::gguf {

/// A file with known tensors.
class Writer : public PlannedFile<FilePlan> {
 public:
  Writer(const std::filesystem::path& path, const std::vector<NewEntry>& entries,
         const std::vector<TensorSpec>& tensors)
      : PlannedFile(path, plan_file(entries, tensors, path.string())) {}
};

class GgufBytes {
 public:
  explicit GgufBytes(std::uint64_t tensors = 0, std::uint64_t keys = 0, std::uint32_t version = 3) {
    bytes_ = "GGUF";
    number(version);
    number(tensors);
    number(keys);
  }
  template <class T>
  GgufBytes& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& text(std::string_view s) {
    number(std::uint64_t{s.size()});
    bytes_ += s;
    return *this;
  }
  GgufBytes& key(std::string_view name, std::uint32_t type) { return text(name).number(type); }
  GgufBytes& tensor(std::string_view name, const std::vector<std::int64_t>& ne, std::uint32_t type,
                    std::uint64_t offset) {
    text(name).number(static_cast<std::uint32_t>(ne.size()));
    for (const std::int64_t n : ne) number(n);
    return number(type).number(offset);
  }
  GgufBytes& data(std::size_t bytes, std::size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    bytes_.append(bytes, '\1');
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Never lets the parser read outside.
inline Header parse(std::string_view bytes) {
  const ReadAt read = [bytes](std::uint64_t offset, std::span<std::byte> out) {
    if (offset > bytes.size() || out.size() > bytes.size() - offset)
      throw std::logic_error("read outside of the file");
    std::memcpy(out.data(), bytes.data() + offset, out.size());
  };
  return parse_header(read, bytes.size(), "file.gguf");
}
inline Header parse(const GgufBytes& bytes) { return parse(bytes.str()); }

}  // namespace nvfp4::gguf
