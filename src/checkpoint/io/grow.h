#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nvfp4::checkpoint {

/// Returns the first `bytes` of a buffer. The buffer grows if necessary and never shrinks.
inline std::span<std::byte> grow(std::vector<std::byte>& buffer, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  if (buffer.size() < size) buffer.resize(size);
  return {buffer.data(), size};
}

}  // namespace nvfp4::checkpoint
