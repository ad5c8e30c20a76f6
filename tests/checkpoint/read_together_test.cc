#include "checkpoint/source/content.h"
#include "testing.h"

namespace nvfp4::checkpoint::read_together_test {

TEST(ReadTogether, DoesEachOnceAndSeveralAtATime) {
  constexpr std::size_t kCount = 100;
  std::vector<std::atomic<int>> done(kCount);
  std::atomic<int> inside{0}, most{0}, together{0};
  read_together(kCount, [&](std::size_t i) {
    const int now = ++inside;
    int seen = most;
    while (seen < now && !most.compare_exchange_weak(seen, now)) {
    }
    // The first ones wait for each other, for so long as others may still come.
    for (int spin = 0; spin < 1'000'000 && together < 2 && most < 2; ++spin)
      std::this_thread::yield();
    if (most >= 2) ++together;
    ++done[i];
    --inside;
  });
  for (const auto& count : done) EXPECT_EQ(count, 1);
  EXPECT_GE(most, 2);
  EXPECT_LE(most, static_cast<int>(kReadsTogether));
}

TEST(ReadTogether, ThrowsTheFirstErrorAfterAllEnd) {
  std::atomic<int> ended{0};
  try {
    read_together(50, [&](std::size_t i) {
      ++ended;
      if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
    });
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "7");
  }
  EXPECT_EQ(ended, 50);
  read_together(0, [](std::size_t) { FAIL(); });
}

}  // namespace nvfp4::checkpoint::read_together_test
