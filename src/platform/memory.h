#pragma once

#include <cstddef>
#include <cstdint>

namespace nvfp4::platform {

/// Allocates memory. `bytes` is a multiple of `align`. Returns nullptr if there is not enough
/// memory.
void* allocate_aligned(std::size_t align, std::size_t bytes);
void free_aligned(void* memory);
/// Hints that the memory should be in large pages.
void prefer_large_pages(void* memory, std::size_t bytes);
/// Returns the largest memory of this process so far, in bytes.
std::uint64_t peak_memory();

}  // namespace nvfp4::platform
