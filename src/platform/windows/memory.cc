#include "platform/memory.h"

#include <malloc.h>

#include "platform/windows/system.h"

namespace nvfp4::platform {

void* allocate_aligned(std::size_t align, std::size_t bytes) {
  return ::_aligned_malloc(bytes, align);
}

void free_aligned(void* memory) { ::_aligned_free(memory); }

// Large pages need a right that users do not have.
void prefer_large_pages(void*, std::size_t) {}

std::uint64_t peak_memory() {
  PROCESS_MEMORY_COUNTERS counters{};
  counters.cb = sizeof counters;
  return ::K32GetProcessMemoryInfo(::GetCurrentProcess(), &counters, sizeof counters) != 0
             ? counters.PeakWorkingSetSize
             : 0;
}

}  // namespace nvfp4::platform
