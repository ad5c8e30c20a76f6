#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// The common parts of the programs of all peers: the GEMM y = x·wᵀ, its inputs, the clock and the
/// check.
namespace nvfp4::peers {

inline constexpr std::int64_t kN = 4096;
inline constexpr std::int64_t kK = 7168;
inline constexpr std::int64_t kRows[] = {1, 4, 16, 64, 256, 512};
inline constexpr std::int64_t kMaxRows = 512;
inline constexpr int kThreads[] = {1, 2};
/// Period of the rows of w. A repeated pattern is fast to quantize.
inline constexpr std::int64_t kPattern = 256;

/// Returns the number of copies of weights of this size: together 1.2 GB, more than the caches.
inline int copies(std::int64_t bytes) { return static_cast<int>(1'200'000'000 / bytes) + 1; }

inline std::vector<float> gaussian(std::int64_t size, float deviation, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& value : values) value = normal(rng);
  return values;
}

/// The inputs in FP32, and some columns of their GEMM.
class Problem {
 public:
  Problem() {
    for (std::int64_t m = 0; m < kMaxRows; ++m)
      for (std::int64_t i = 0; i < kChecked; ++i) {
        const float* w_row = w.data() + column(i) % kPattern * kK;
        float sum = 0;
        for (std::int64_t k = 0; k < kK; ++k)
          sum += x[static_cast<std::size_t>(m * kK + k)] * w_row[k];
        expected_.push_back(sum);
      }
  }

  /// Returns |y · scale − x·wᵀ| / |x·wᵀ| over the checked columns of the first m rows. y has any
  /// type.
  template <class T>
  double error(const T* y, std::int64_t m, double scale = 1) const {
    double difference = 0, norm = 0;
    for (std::int64_t i = 0; i < m * kChecked; ++i) {
      const double right = expected_[static_cast<std::size_t>(i)];
      const double off = y[i / kChecked * kN + column(i % kChecked)] * scale - right;
      difference += off * off;
      norm += right * right;
    }
    return std::sqrt(difference / norm);
  }

  const std::vector<float> w = gaussian(kPattern * kK, 0.02f, 1);  // [kPattern, kK]
  const std::vector<float> x = gaussian(kMaxRows * kK, 1.0f, 2);   // [kMaxRows, kK]

 private:
  static constexpr std::int64_t kChecked = 32;
  static std::int64_t column(std::int64_t i) { return (kN - 1) * i / (kChecked - 1); }

  std::vector<float> expected_;  // [kMaxRows, kChecked]
};

/// Weights of one kind, in several copies, for GEMMs.
struct Weights {
  std::string type;
  std::int64_t bytes;  // bytes of one copy
  int count;           // number of copies
  double most_error;   // error limit of its precision
  int next = 0;        // copy whose last use is the longest ago

  int take() { return std::exchange(next, (next + 1) % count); }
};

/// Calls `product` with the copies in turn for `seconds` seconds, and prints the rates of the mean
/// call. The fastest may be one whose weights a cache still has. Throws if `error` shows that the
/// last result was wrong.
inline void measure(Weights& weights, std::int64_t m, int threads, double seconds,
                    const std::function<void(int copy)>& product,
                    const std::function<double()>& error) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  double spent = 0;
  int calls = 0;
  do {
    product(weights.take());
    ++calls;
    spent = std::chrono::duration<double>(Clock::now() - start).count();
  } while (spent < seconds);
  const double mean = spent / calls;
  const double off = error();
  if (!(off <= weights.most_error))
    throw std::runtime_error(weights.type + ", m = " + std::to_string(m) + ": relative error " +
                             std::to_string(off) + ", at most " +
                             std::to_string(weights.most_error) + " is allowed");
  std::printf(
      "{\"type\": \"%s\", \"m\": %d, \"threads\": %d, \"gflops\": %.2f, \"gbs\": %.3f, "
      "\"error\": %.4f}\n",
      weights.type.c_str(), static_cast<int>(m), threads,
      2e-9 * static_cast<double>(m * kN * kK) / mean,
      1e-9 * static_cast<double>(weights.bytes) / mean, off);
  std::fflush(stdout);
}

/// Runs `all` with the seconds of `PROGRAM SECONDS`. Returns exit code 1 for an exception.
inline int run(int count, char** arguments, const std::function<void(double seconds)>& all) try {
  if (count != 2) throw std::invalid_argument("usage: PROGRAM SECONDS");
  all(std::stod(arguments[1]));
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}

}  // namespace nvfp4::peers
