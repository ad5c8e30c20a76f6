#include "core/parallel_for.h"

#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

namespace nvfp4::parallel_for_test {

TEST(ParallelFor, CallsEachIndexOnce) {
  set_threads(4);
  for (const std::int64_t n : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(n));
    parallel_for(n, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
    for (const auto& c : calls) EXPECT_EQ(c.load(), 1);
  }
  set_threads(0);
}

TEST(ParallelFor, NestedCallsRunOnTheirOwnThread) {
  set_threads(3);
  std::atomic<int> wrong{0}, sum{0};
  parallel_for(8, [&](std::int64_t) {
    const auto here = std::this_thread::get_id();
    parallel_for(5, [&](std::int64_t) {
      wrong += std::this_thread::get_id() != here;
      ++sum;
    });
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(sum, 40);
  set_threads(0);
}

TEST(ParallelFor, RethrowsTheFirstExceptionAndGoesOnWorking) {
  set_threads(2);
  EXPECT_THROW(parallel_for(100,
                            [](std::int64_t i) {
                              if (i == 7) throw std::runtime_error("seven");
                            }),
               std::runtime_error);
  std::atomic<int> sum{0};
  parallel_for(10, [&](std::int64_t) { ++sum; });
  EXPECT_EQ(sum, 10);
  set_threads(0);
}

TEST(ParallelFor, NeverUsesMoreThreadsThanSet) {
  set_threads(2);
  std::atomic<int> running{0}, most{0};
  parallel_for(50, [&](std::int64_t) {
    const int now = ++running;
    int seen = most.load();
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    std::this_thread::yield();
    --running;
  });
  EXPECT_LE(most, 2);
  set_threads(0);
}

TEST(ParallelFor, SeveralCallersTakeTurns) {
  set_threads(2);
  std::atomic<int> sum{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) parallel_for(16, [&](std::int64_t) { ++sum; });
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(sum, 4 * 20 * 16);
  set_threads(0);
}

/// Threads wait for the next loop in a loop of their own, and sleep after a while.
TEST(ParallelFor, WakesThreadsThatWaitAndThoseThatSleep) {
  const int cpus = static_cast<int>(std::thread::hardware_concurrency());
  for (const int n : {2, cpus + 1}) {  // threads that share CPUs do not wait in a loop
    set_threads(n);
    for (int i = 0; i < 300; ++i) {
      std::atomic<int> started{0};
      parallel_for(2, [&](std::int64_t) {  // ends only if a second thread comes
        ++started;
        while (started < 2) std::this_thread::yield();
      });
      if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  set_threads(0);
}

/// Loops so short that workers come while one ends, when it has ended, or in the next.
TEST(ParallelFor, LateWorkersLoseNoIndex) {
  for (const int n : {2, 5}) {
    set_threads(n);
    std::int64_t expected = 0;
    std::atomic<std::int64_t> sum{0};
    for (int i = 0; i < 20000; ++i) {
      const std::int64_t parts = 2 + i % 3;
      std::atomic<int> inside{
          0};  // gone when the loop returns: a worker that is late must not touch it
      parallel_for(parts, [&](std::int64_t part) {
        ++inside;
        sum += part + 1;
        --inside;
      });
      expected += parts * (parts + 1) / 2;
      ASSERT_EQ(inside, 0);
      ASSERT_EQ(sum, expected);
    }
  }
  set_threads(0);
}

std::atomic<int> regions{0};
void run_on_new_threads(void (*body)(void*), void* data, unsigned count, unsigned flags) {
  ++regions;
  EXPECT_EQ(flags, 0u);
  std::vector<std::thread> others;
  for (unsigned i = 1; i < count; ++i) others.emplace_back(body, data);
  body(data);
  for (std::thread& t : others) t.join();
}

TEST(ParallelFor, RunsInTheParallelRegionsOfAnotherRuntime) {
  set_threads(3);
  regions = 0;
  set_parallel_region(run_on_new_threads);
  std::atomic<int> sum{0}, wrong{0};
  parallel_for(1000, [&](std::int64_t) {
    const auto here = std::this_thread::get_id();
    parallel_for(2, [&](std::int64_t) { wrong += std::this_thread::get_id() != here; });
    ++sum;
  });
  EXPECT_THROW(parallel_for(8, [](std::int64_t) { throw std::runtime_error("eight"); }),
               std::runtime_error);
  EXPECT_EQ(regions, 2);
  EXPECT_EQ(sum, 1000);
  EXPECT_EQ(wrong, 0);
  set_parallel_region(nullptr);
  parallel_for(8, [&](std::int64_t) { ++sum; });
  EXPECT_EQ(regions, 2);
  EXPECT_EQ(sum, 1008);
  set_threads(0);
}

/// Threads that wait beside those of another runtime would take their CPUs.
TEST(ParallelFor, StartsNoThreadsBesideThoseOfAnotherRuntime) {
  const std::filesystem::path tasks = "/proc/self/task";
  if (!std::filesystem::exists(tasks)) GTEST_SKIP() << "no /proc to count threads by";
  const auto now = [&] {
    std::set<std::filesystem::path> found;
    for (const auto& task : std::filesystem::directory_iterator(tasks)) found.insert(task.path());
    return found;
  };
  set_threads(1);
  std::thread([] {}).join();  // with the first, the thread sanitizer starts one of its own
  const auto before = now();
  // A thread that was joined is in /proc a while longer.
  const auto others = [&](std::ptrdiff_t wanted) {
    std::ptrdiff_t found = -1;
    for (int look = 0; look < 10'000 && found != wanted; ++look) {
      if (look > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      found = std::ranges::count_if(now(), [&](const auto& t) { return !before.contains(t); });
    }
    return found;
  };
  set_parallel_region(run_on_new_threads);
  set_threads(5);
  EXPECT_EQ(threads(), 5);
  std::atomic<int> sum{0};
  parallel_for(1000, [&](std::int64_t) { ++sum; });
  EXPECT_EQ(sum, 1000);
  EXPECT_EQ(others(0), 0);
  set_parallel_region(nullptr);
  parallel_for(8, [&](std::int64_t) { ++sum; });
  EXPECT_EQ(sum, 1008);
  EXPECT_EQ(others(4), 4);
  set_threads(0);
}

// The threads of the parent are not in the child; the child must neither wait for them nor at exit.
TEST(ParallelFor, WorksInAForkedChild) {
#ifdef NVFP4_TEST_EMULATOR
  GTEST_SKIP() << "qemu starts no threads in a child of a process that has some";
#elif defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer allows no threads in a child of a process that has some";
#endif
  set_threads(2);
  parallel_for(8, [](std::int64_t) {});
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang ends as a signal
    std::atomic<int> sum{0};
    parallel_for(8, [&](std::int64_t) { ++sum; });
#if defined(__SANITIZE_ADDRESS__)
    // Only the stacks of the parent's threads, which are not here, hold what these were started
    // with: LeakSanitizer would report it.
    _exit(sum == 8 ? 0 : 1);
#else
    std::exit(sum == 8 ? 0 : 1);
#endif
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  set_threads(0);
}

}  // namespace nvfp4::parallel_for_test
