#include "platform/process.h"

#include "platform/memory.h"
#include "platform/terminal.h"
#include "testing.h"

namespace nvfp4::platform::process_test {

TEST(PlatformProcess, KnowsItself) {
  EXPECT_GT(process_id(), 0);
  EXPECT_FALSE(host_name().empty());
  EXPECT_NE(random_number(), random_number());
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_GT(peak_memory(), 1'000'000u);
  EXPECT_NE(std::getenv(kHomeVariable), nullptr);
}

TEST(PlatformProcess, MemoryIsAligned) {
  void* const memory = allocate_aligned(4096, 8192);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 4096, 0u);
  free_aligned(memory);
}

}  // namespace nvfp4::platform::process_test
