#pragma once

#include <cstddef>
#include <cstdint>

namespace nvfp4::platform {

/// `bytes` is a multiple of `align`; nullptr where there is no memory.
void* allocate_aligned(std::size_t align, std::size_t bytes);
void free_aligned(void* memory);
/// A hint: large pages, where the system has them.
void prefer_large_pages(void* memory, std::size_t bytes);
/// The most that this process has had in memory.
std::uint64_t peak_memory();

}  // namespace nvfp4::platform
