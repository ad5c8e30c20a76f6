#include "platform/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace nvfp4::platform {

void* allocate_aligned(std::size_t align, std::size_t bytes) {
  return std::aligned_alloc(align, bytes);
}

void free_aligned(void* memory) { std::free(memory); }

void prefer_large_pages(void* memory, std::size_t bytes) {
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);  // a hint: an error changes nothing
}

std::uint64_t peak_memory() {
  // ru_maxrss survives exec and would include the process that started this one.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace nvfp4::platform
