#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <vector>

namespace nvfp4::bench {

/// A quantity of work of a call, in units of 10^9 per second.
struct Work {
  const char* name;
  double amount;
};

inline double seconds_of(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  call();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Measures each call separately. The counters are those of the fastest call, since other work on
/// the machine only makes calls slower. The columns of times are means.
inline void measure(benchmark::State& state, const std::vector<Work>& work,
                    const std::function<void()>& call) {
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) best = std::min(best, seconds_of(call));
  for (const Work& w : work) state.counters[w.name] = w.amount * 1e-9 / best;
}

}  // namespace nvfp4::bench
