#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/gguf/view.h"
#include "fuzz/must.h"

/// Properties of every GGUF file that is opened as a model or by its own names.
namespace nvfp4::gguf {

/// The bytes as a file that has a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : fd_(::memfd_create("input", 0)) {
    must(fd_ >= 0 && ::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
         "the file can be made");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

inline void check_gguf_view(std::span<const std::byte> bytes, Naming naming) {
  const MemoryFile file(bytes);
  try {
    const auto view = open_view(file.path(), naming);
    std::vector<std::byte> part;
    for (const safetensors::TensorInfo& t : view->tensors()) {
      must(view->find(t.name) == &t, "a tensor is found by its name");
      part.resize(std::min<std::uint64_t>(t.bytes, 4096));
      try {
        view->read(t, 0, part);
        view->read(t, t.bytes - part.size(), part);
      } catch (const FormatError& error) {  // scales and widened values are looked at when read
        check_message(error, file.path());
      }
      view->will_read(t, 0, t.bytes);
      view->stored_form(t);
    }
    view->config_text();
  } catch (const FormatError& error) {
    check_message(error, file.path());
  } catch (const UnsupportedError&) {
    return;
  }
}

inline void check_gguf_views(std::span<const std::byte> bytes) {
  check_gguf_view(bytes, Naming::model);
  check_gguf_view(bytes, Naming::stored);
}

}  // namespace nvfp4::gguf
