#include "platform/process.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "platform/memory.h"
#include "platform/terminal.h"

namespace nvfp4::platform::process_test {
namespace {

/// This program with words behind its name, as it reads them itself.
std::vector<std::string> ourselves(const std::string& test) {
  for (const char* shard : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"})  // the parent's
#ifdef _WIN32
    _putenv_s(shard, "");
#else
    unsetenv(shard);
#endif
  return {testing::internal::GetArgvs().front(), "--gtest_also_run_disabled_tests",
          "--gtest_filter=" + test};
}

// What the next test runs: tells its last words and copies three bytes of its input.
TEST(PlatformProcess, DISABLED_Child) {
  std::array<char, 3> input{};
  const std::size_t n = std::fread(input.data(), 1, input.size(), stdin);
  std::printf("<%.*s>", static_cast<int>(n), input.data());
  const std::vector<std::string> words = testing::internal::GetArgvs();
  for (std::size_t i = 1; i < words.size(); ++i) std::printf("<%s>", words[i].c_str());
  std::fflush(stdout);
  std::_Exit(7);
}

TEST(PlatformProcess, ChildReadsAndWritesAndEnds) {
  std::vector<std::string> words = ourselves("PlatformProcess.DISABLED_Child");
  words.insert(words.end(), {"a b", "c\\", "\"d\\\" e\\\\", "", "f"});
  Child child;
  ASSERT_EQ(child.start(words, Child::Streams::piped), 0);
  EXPECT_TRUE(child.write("xyz"));
  std::string said;
  std::array<char, 100> part{};
  for (std::ptrdiff_t n = 0; (n = child.read(part.data(), part.size())) > 0;)
    said.append(part.data(), static_cast<std::size_t>(n));
  EXPECT_EQ(child.wait(), 7);
  EXPECT_NE(said.find("<xyz>"), said.npos) << said;
  EXPECT_NE(said.find("<a b><c\\><\"d\\\" e\\\\><><f>"), said.npos) << said;
}

TEST(PlatformProcess, ProgramThatIsNotThereIsNamedByErrno) {
  Child child;
  EXPECT_EQ(child.start({"no-such-program"}, Child::Streams::our_stdin), ENOENT);
  EXPECT_FALSE(program("no-such-program"));
}

TEST(PlatformProcess, KnowsItself) {
  EXPECT_GT(process_number(), 0);
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

}  // namespace
}  // namespace nvfp4::platform::process_test
