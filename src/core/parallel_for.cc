#include "core/parallel_for.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
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

namespace nvfp4 {
namespace {

thread_local bool inside_pool = false;

int usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

int default_threads() {
  if (const char* text = std::getenv("NVFP4_THREADS"); text != nullptr && *text != '\0') {
    char* end = nullptr;
    const long n = std::strtol(text, &end, 10);
    require<ValueError>(*end == '\0' && n >= 1 && n <= 4096,
                        "NVFP4_THREADS = '{}', must be an integer in 1..4096", text);
    return static_cast<int>(n);
  }
  const int cpus = usable_cpus();
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

class Pool {
 public:
  explicit Pool(int threads) {
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
  bool works_here() const { return process_ == ::getpid(); }

  void run(Loop& loop) {
    const std::lock_guard one_loop_at_a_time(loop_mutex_);
    {
      const std::lock_guard lock(mutex_);
      loop_ = &loop;
      ++generation_;
      busy_ = static_cast<int>(workers_.size());
    }
    wake_.notify_all();
    inside_pool = true;
    loop.run();
    inside_pool = false;
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
    loop_ = nullptr;
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
      Loop* loop = nullptr;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
        if (stop_) return;
        seen = generation_;
        loop = loop_;
      }
      loop->run();
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> workers_;
  std::mutex loop_mutex_, mutex_;
  std::condition_variable wake_, done_;
  Loop* loop_ = nullptr;
  std::uint64_t generation_ = 0;
  int busy_ = 0;
  bool stop_ = false;
  pid_t process_ = ::getpid();
};

std::mutex pool_mutex;
/// Never destroyed: at exit there may be no threads left to join, as in a forked child.
std::unique_ptr<Pool>& pool_slot() {
  static auto* const pool = new std::unique_ptr<Pool>;
  return *pool;
}
/// The threads of a parent process do not exist in its child: forget them there. What cannot be
/// destroyed stays reachable, so that it is no leak.
void drop_foreign_pool() {
  static auto* const foreign = new std::vector<Pool*>;
  if (pool_slot() && !pool_slot()->works_here()) foreign->push_back(pool_slot().release());
}
Pool& pool() {
  const std::lock_guard lock(pool_mutex);
  drop_foreign_pool();
  if (!pool_slot()) pool_slot() = std::make_unique<Pool>(default_threads());
  return *pool_slot();
}

}  // namespace

void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& fn) {
  if (n <= 0) return;
  Loop loop{n, fn};
  if (n == 1 || inside_pool)
    loop.run();
  else if (Pool& p = pool(); p.threads() == 1)
    loop.run();
  else
    p.run(loop);
  if (loop.error) std::rethrow_exception(loop.error);
}

void set_threads(int threads) {
  require<ValueError>(threads >= 0 && threads <= 4096,
                      "set_threads: threads = {}, must be in 1..4096, or 0 for the default",
                      threads);
  const int n = threads == 0 ? default_threads() : threads;
  const std::lock_guard lock(pool_mutex);
  drop_foreign_pool();
  if (pool_slot() && pool_slot()->threads() == n) return;
  pool_slot().reset();
  pool_slot() = std::make_unique<Pool>(n);
}

int threads() { return pool().threads(); }

}  // namespace nvfp4
