#include <cstddef>
#include <cstdint>

#include "fuzz/check_gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  nvfp4::gguf::check_gguf(std::as_bytes(std::span(data, size)));
  return 0;
}
