#include <cstddef>
#include <cstdint>

#include "fuzz/check_gguf.h"
#include "fuzz/check_gguf_view.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (nvfp4::gguf::check_gguf(bytes)) nvfp4::gguf::check_gguf_views(bytes);
  return 0;
}
