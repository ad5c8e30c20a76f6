#include "simt.h"

#include <ucontext.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

namespace nvfp4::cuda::sm80 {
alignas(128) std::uint8_t memory[emulated::kSharedBytes];  // of the kernel
}
namespace nvfp4::emulated {
namespace {

using cuda::sm80::memory;

struct Copy {
  std::uint32_t to;
  const void* from;
  int bytes;
  bool zeros;
};

struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
  std::vector<Copy> open;
  std::vector<std::vector<Copy>> groups;
};

struct Barrier {
  int arrived = 0;
  unsigned phase = 0;
};

constexpr std::size_t kStackBytes = 64 * 1024;

std::vector<Thread> threads;
std::map<int, Barrier> barriers;
std::vector<WarpWords> words;
ucontext_t scheduler;
unsigned current, block, grid;
unsigned arrivals;  ///< of all barriers: that something goes on
void (*running)(const void*);
const void* argument;

void perform(const Copy& c) {
  if (c.zeros)
    std::memset(memory + c.to, 0, static_cast<std::size_t>(c.bytes));
  else
    std::memcpy(memory + c.to, c.from, static_cast<std::size_t>(c.bytes));
}

void run_thread() {
  running(argument);
  await_copies(0);
  threads[current].done = true;
  swapcontext(&threads[current].context, &scheduler);
}

void run_block(int count) {
  std::memset(memory, 0xFF, sizeof memory);
  barriers.clear();
  words.assign(static_cast<std::size_t>(count / 32), {});
  for (Thread& t : threads) {
    t.done = false;
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = t.stack.get();
    t.context.uc_stack.ss_size = kStackBytes;
    t.context.uc_link = nullptr;
    makecontext(&t.context, run_thread, 0);
  }
  for (int left = count; left > 0;) {
    const unsigned before = arrivals;
    const int left_before = left;
    for (current = 0; current < threads.size(); ++current) {
      if (threads[current].done) continue;
      swapcontext(&scheduler, &threads[current].context);
      left -= threads[current].done ? 1 : 0;
    }
    if (arrivals == before && left == left_before)
      throw std::runtime_error("the threads of a block wait for ever");
  }
}

}  // namespace

Index thread_index() { return {current}; }
Index block_index() { return {block}; }
Index grid_size() { return {grid}; }
std::uint8_t* shared_memory() { return memory; }

void barrier(int id, int count) {
  Barrier& b = barriers[id];
  ++arrivals;
  const unsigned phase = b.phase;
  if (++b.arrived == count) {
    b.arrived = 0;
    ++b.phase;
  }
  while (b.phase == phase) swapcontext(&threads[current].context, &scheduler);
}
void warp_barrier() { barrier(1000 + static_cast<int>(current / 32), 32); }
WarpWords& warp_words() { return words[current / 32]; }

void copy_async(std::uint32_t to, const void* from, int bytes, bool zeros) {
  if (to + static_cast<std::uint32_t>(bytes) > kSharedBytes || to % static_cast<unsigned>(bytes))
    throw std::runtime_error("cp.async to a wrong address");
  std::memset(memory + to, 0xFF, static_cast<std::size_t>(bytes));
  threads[current].open.push_back({to, from, bytes, zeros});
}
void commit_copies() {
  Thread& t = threads[current];
  t.groups.push_back(std::move(t.open));
  t.open.clear();
}
void await_copies(int pending) {
  Thread& t = threads[current];
  while (static_cast<int>(t.groups.size()) > pending) {
    for (const Copy& c : t.groups.front()) perform(c);
    t.groups.erase(t.groups.begin());
  }
}

void launch(int blocks, int count, bool backwards, void (*kernel)(const void*), const void* p) {
  threads.resize(static_cast<std::size_t>(count));
  for (Thread& t : threads)
    if (!t.stack) t.stack = std::make_unique<char[]>(kStackBytes);
  running = kernel;
  argument = p;
  grid = static_cast<unsigned>(blocks);
  for (int i = 0; i < blocks; ++i) {
    block = static_cast<unsigned>(backwards ? blocks - 1 - i : i);
    run_block(count);
  }
}

}  // namespace nvfp4::emulated

void __syncthreads() {
  nvfp4::emulated::barrier(0, static_cast<int>(nvfp4::emulated::threads.size()));
}
