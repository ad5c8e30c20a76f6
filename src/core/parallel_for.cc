#include "core/parallel_for.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/require.h"
#include "nvfp4/runtime.h"
#include "platform/process.h"

namespace nvfp4 {
namespace {

thread_local bool inside_pool = false;

int default_threads() {
  if (const char* text = std::getenv("NVFP4_THREADS"); text != nullptr && *text != '\0') {
    char* end = nullptr;
    const long n = std::strtol(text, &end, 10);
    require<ValueError>(*end == '\0' && n >= 1 && n <= 4096,
                        "NVFP4_THREADS = '{}', must be an integer in 1..4096", text);
    return static_cast<int>(n);
  }
  const int cpus = platform::usable_cpus();
  return cpus < 1 ? 1 : cpus;
}

struct Loop {
  std::int64_t n;
  const std::function<void(std::int64_t)>& fn;
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex{};
  std::exception_ptr error{};

  void run() {
    for (std::int64_t i; !failed.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < n;) {
      try {
        fn(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        failed.store(true);
      }
    }
  }
};

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits in a loop for a limited time and returns whether the condition became true. In a virtual
/// machine a sleeping thread takes 20 to 60 microseconds to wake up. This is as long as a part of a
/// GEMM with one row of x.
template <class Condition>
bool spin_until(Condition&& condition) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kPatience{100};
  constexpr int kLooks = 64;  // iterations between two reads of the clock
  for (const Clock::time_point end = Clock::now() + kPatience; Clock::now() < end;)
    for (int i = 0; i < kLooks; ++i) {
      if (condition()) return true;
      relax();
    }
  return condition();
}

/// The state that the threads of a pool share, in one word. It holds the number of the loop,
/// whether the loop has indices left, and the number of workers in it.
class LoopState {
 public:
  /// Starts the next loop. No worker may be in the loop before.
  void open() { word_.store((number() + 1) * 2 * kOpen + kOpen); }
  /// Closes the loop: no worker can join any more. Workers that have joined stay in it.
  void close() { word_.fetch_and(~kOpen); }
  std::uint64_t number() const { return word_.load() / (2 * kOpen); }
  bool empty() const { return word_.load() % kOpen == 0; }
  /// Returns false if the loop of that number is closed.
  bool join(std::uint64_t loop) {
    std::uint64_t seen = word_.load();
    do {
      if (seen / (2 * kOpen) != loop || (seen & kOpen) == 0) return false;
    } while (!word_.compare_exchange_weak(seen, seen + 1));
    return true;
  }
  /// Returns true if the loop is closed and this was the last worker in it.
  bool leave() { return word_.fetch_sub(1) % (2 * kOpen) == 1; }

 private:
  static constexpr std::uint64_t kOpen = 1u << 16;  ///< exceeds the number of workers
  std::atomic<std::uint64_t> word_ = 0;
};

/// The threads of parallel_for(). A caller of run() waits only for workers that have joined its
/// loop, not for those that still wake up. On a busy CPU, or on one that a virtual machine has
/// suspended, a wake-up can take longer than the loop.
class Pool {
 public:
  explicit Pool(int threads) : spins_(threads <= platform::usable_cpus()) {
    try {
      for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error& e) {
      stop();
      throw UnsupportedError(fmt::format("threads = {}: cannot start thread {}: {}", threads,
                                         workers_.size() + 2, e.what()));
    }
  }
  ~Pool() { stop(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  bool works_here() const { return process_ == platform::process_id(); }

  void run(Loop& loop) {
    const std::lock_guard one_loop_at_a_time(loop_mutex_);
    {
      const std::lock_guard lock(mutex_);
      loop_ = &loop;
      state_.open();
    }
    wake_.notify_all();
    inside_pool = true;
    loop.run();
    inside_pool = false;
    state_.close();
    const auto done = [this] { return state_.empty(); };
    if (done() || (spins_ && spin_until(done))) return;
    std::unique_lock lock(mutex_);
    done_.wait(lock, done);
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  void work() {
    inside_pool = true;
    std::uint64_t seen = 0;
    for (;;) {
      const auto called = [&] { return stop_ || state_.number() != seen; };
      if (!spins_ || !spin_until(called)) {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, called);
      }
      if (stop_) return;
      seen = state_.number();
      if (!state_.join(seen)) continue;
      loop_->run();
      if (!state_.leave()) continue;
      // The lock makes sure that a waiting thread already sleeps. Otherwise it would miss the
      // notification.
      const std::lock_guard lock(mutex_);
      done_.notify_one();
    }
  }

  std::vector<std::thread> workers_;
  std::mutex loop_mutex_, mutex_;
  std::condition_variable wake_, done_;
  Loop* loop_ = nullptr;  ///< loop of the workers that have joined; written while there are none
  LoopState state_;
  std::atomic<bool> stop_ = false;
  const bool spins_;  ///< false if the threads share CPUs
  int process_ = platform::process_id();
};

std::mutex pool_mutex;
/// Returns the pool. It is never destroyed: at exit there may be no threads to join, as in a forked
/// child.
std::unique_ptr<Pool>& pool_slot() {
  static auto* const pool = new std::unique_ptr<Pool>;
  return *pool;
}
/// Drops the pool of a parent process, whose threads do not exist in its child. The object stays
/// reachable because it cannot be destroyed and would otherwise be a leak.
void drop_foreign_pool() {
  static auto* const foreign = new std::vector<Pool*>;
  if (pool_slot() && !pool_slot()->works_here()) foreign->push_back(pool_slot().release());
}
/// Number of threads of loops, or 0 before the first request. A pool has as many once a loop needs
/// it.
std::atomic<int> thread_count = 0;

Pool& pool() {
  const std::lock_guard lock(pool_mutex);
  drop_foreign_pool();
  if (!pool_slot()) pool_slot() = std::make_unique<Pool>(threads());
  return *pool_slot();
}

std::atomic<ParallelRegion> parallel_region = nullptr;
std::atomic<int> region_process = 0;  ///< process that owns these threads

/// Returns the parallel region of another runtime, if it belongs to this process.
ParallelRegion region_here() {
  return region_process == platform::process_id() ? parallel_region.load() : nullptr;
}

void run_in(ParallelRegion region, Loop& loop, int threads) {
  const auto body = [](void* data) {
    inside_pool = true;
    static_cast<Loop*>(data)->run();
    inside_pool = false;
  };
  region(body, &loop, static_cast<unsigned>(threads), 0);
}

}  // namespace

void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& fn) {
  if (n <= 0) return;
  Loop loop{n, fn};
  if (n == 1 || inside_pool || threads() == 1)
    loop.run();
  else if (const ParallelRegion region = region_here(); region != nullptr)
    run_in(region, loop, threads());
  else
    pool().run(loop);
  if (loop.error) std::rethrow_exception(loop.error);
}

void set_threads(int threads) {
  require<ValueError>(threads >= 0 && threads <= 4096,
                      "set_threads: threads = {}, must be in 1..4096, or 0 for the default",
                      threads);
  const int n = threads == 0 ? default_threads() : threads;
  const std::lock_guard lock(pool_mutex);
  drop_foreign_pool();
  if (!pool_slot() || pool_slot()->threads() != n) {
    pool_slot().reset();
    // The pool starts here, so that a failure to start is reported here.
    if (region_here() == nullptr) pool_slot() = std::make_unique<Pool>(n);
  }
  thread_count = n;
}

int threads() {
  int n = thread_count;
  if (n == 0) {
    const int all = default_threads();
    n = thread_count.compare_exchange_strong(n, all) ? all : n;
  }
  return n;
}

void set_parallel_region(ParallelRegion region) {
  region_process = platform::process_id();
  parallel_region = region;
}

}  // namespace nvfp4
