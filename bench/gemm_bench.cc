// GEMM beside what the machine can do in the same run: reading from memory, and the peaks of the
// instructions. N = 4096, K = 7168; so many copies of the weights that no cache holds them.
// Names: gemm/<backend>/<w4a4 or w4a16>/M:<M>/threads:<threads>.
#include <benchmark/benchmark.h>

#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "bench_matrix.h"
#include "bench_peaks.h"
#include "fastest.h"
#include "nvfp4/gemm.h"
#include "nvfp4/runtime.h"
#include "team.h"

namespace nvfp4 {
namespace {

using bench::measure;
using bench::Work;

constexpr std::int64_t kN = 4096, kK = 7168;
constexpr std::size_t kCopies = 72;  // 1.2 GB
constexpr std::size_t kCopyBytes = kN * kK * 9 / 16;

const std::vector<PackedWeights>& weight_copies() {
  static const std::vector<PackedWeights> copies = [] {
    const QuantizedMatrix q = quantize(bench::gaussian(DType::bf16, kN, kK).view());
    std::vector<PackedWeights> list;
    for (std::size_t i = 0; i < kCopies; ++i) list.push_back(pack_weights(q.view()));
    return list;
  }();
  return copies;
}

/// The copy that was not read for longest, whoever read it: none is in a cache.
const PackedWeights& next_copy() {
  static std::size_t next = 0;
  return weight_copies()[next++ % kCopies];
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& f) {
  benchmark::RegisterBenchmark(name.c_str(), f)
      ->ArgName("threads")
      ->Arg(1)
      ->Arg(2)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

/// Reads kStreams streams of kBytes each in turn, whole lines, and fetches the line kFar and the
/// line kNear bytes ahead of each. Which way is the fastest depends on the CPU: the limit is the
/// best.
template <std::size_t kStreams, std::size_t kBytes, std::size_t kFar, std::size_t kNear>
std::uint64_t read_lines(const std::uint64_t* p, std::size_t words) {
  constexpr std::size_t kLine = 8, kStream = kBytes / sizeof(std::uint64_t);
  static_assert(kCopyBytes / 2 % (kStreams * kBytes) == 0, "or a part would not be read");
  std::uint64_t bits[kLine] = {};
  for (std::size_t first = 0; first < words; first += kStreams * kStream)
    for (std::size_t i = first; i < first + kStream; i += kLine)
      for (std::size_t s = 0; s < kStreams; ++s) {
        const std::uint64_t* at = p + i + s * kStream;
        if (kFar != 0) __builtin_prefetch(at + kFar / sizeof(std::uint64_t), 0, 2);
        if (kNear != 0) __builtin_prefetch(at + kNear / sizeof(std::uint64_t));
        for (std::size_t j = 0; j < kLine; ++j) bits[j] |= at[j];
      }
  return std::accumulate(bits, bits + kLine, std::uint64_t{0});
}

/// One copy of the weights after the other, as a GEMM with M = 1 must.
void read_memory(benchmark::State& state,
                 std::uint64_t (*read)(const std::uint64_t*, std::size_t)) {
  weight_copies();
  bench::Team team(static_cast<std::size_t>(state.range(0)));
  const std::size_t words = kCopyBytes / sizeof(std::uint64_t) / team.size();
  measure(state, {{"GB/s", double{kCopyBytes}}}, [&] {
    const auto* data = reinterpret_cast<const std::uint64_t*>(next_copy().data());
    team.run([&](std::size_t t) { benchmark::DoNotOptimize(read(data + words * t, words)); });
  });
}

void copy_memory(benchmark::State& state) {
  const auto threads = static_cast<std::size_t>(state.range(0));
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  static std::vector<char> from(kBytes, 1), to(kBytes, 2);
  const std::size_t part = kBytes / threads;
  measure(state, {{"GB/s", 2.0 * kBytes}}, [&] {
    std::vector<std::jthread> pool;
    for (std::size_t t = 0; t < threads; ++t)
      pool.emplace_back(
          [&, t] { std::memcpy(to.data() + t * part, from.data() + t * part, part); });
    pool.clear();
    benchmark::DoNotOptimize(to.data());
  });
}

void peak(benchmark::State& state, const bench::Peak& p) {
  const auto threads = static_cast<std::size_t>(state.range(0));
  measure(state, {{"GFLOP/s", p.operations * static_cast<double>(threads)}}, [&] {
    std::vector<std::jthread> pool;
    for (std::size_t t = 1; t < threads; ++t) pool.emplace_back(p.run);
    p.run();
  });
}

/// A small product first: a wrong kernel must not be timed.
template <class X>
bool is_right(const X& x, const PackedWeights& w, const std::string& backend) {
  const Matrix got = gemm(x, w, DType::f32, {.backend = backend});
  const Matrix want = gemm(x, w, DType::f32, {.backend = "reference"});
  double error = 0, norm = 0;
  for (std::int64_t i = 0; i < got.view().size(); ++i) {
    const double a = static_cast<double>(got.data<float>()[i]);
    const double b = static_cast<double>(want.data<float>()[i]);
    error += (a - b) * (a - b);
    norm += b * b;
  }
  return error <= 1e-10 * norm;
}

template <class X>
void run_gemm(benchmark::State& state, const std::string& backend, const X& x, const X& some,
              std::int64_t m) {
  set_threads(static_cast<int>(state.range(0)));
  const PackedWeights small = pack_weights(bench::gaussian(DType::bf16, 48, kK, 2).view());
  if (!is_right(some, small, backend)) return state.SkipWithError("wrong result");
  weight_copies();
  Matrix out(DType::bf16, m, kN);
  measure(state,
          {{"GFLOP/s", 2.0 * static_cast<double>(m * kN * kK)}, {"GB/s", double{kCopyBytes}}},
          [&] { gemm_into(x, next_copy(), out.span(), {.backend = backend}); });
  set_threads(0);
}

void w4a16(benchmark::State& state, const std::string& backend, DType dtype, std::int64_t m) {
  const Matrix x = bench::gaussian(dtype, m, kK, 3);
  MatrixView some = x.view();
  some.rows = std::min<std::int64_t>(m, 20);
  run_gemm(state, backend, x.view(), some, m);
}

void w4a4(benchmark::State& state, const std::string& backend, std::int64_t m) {
  const QuantizedMatrix x = quantize(bench::gaussian(DType::bf16, m, kK, 3).view());
  QuantizedView some = x.view();
  some.shape.rows = std::min<std::int64_t>(m, 20);
  run_gemm(state, backend, x.view(), some, m);
}

constexpr double kPackedBytes = 8.0 * kCopyBytes;

/// BF16 weights to packed ones, bytes read and written.
void pack(benchmark::State& state, const std::string& backend) {
  set_threads(static_cast<int>(state.range(0)));
  const Matrix w = bench::gaussian(DType::bf16, 8 * kN, kK);
  // The first call may get memory that the host of a virtual machine has yet to provide, and takes
  // so long then that no other one would be made.
  benchmark::DoNotOptimize(pack_weights(w.view(), {.backend = backend}).data());
  measure(state, {{"GB/s", 8.0 * kN * kK * 2 + kPackedBytes}},
          [&] { benchmark::DoNotOptimize(pack_weights(w.view(), {.backend = backend}).data()); });
  set_threads(0);
}

/// Codes and scales of a checkpoint to packed ones, bytes read and written.
void pack_codes(benchmark::State& state) {
  set_threads(static_cast<int>(state.range(0)));
  const QuantizedMatrix w = quantize(bench::gaussian(DType::bf16, 8 * kN, kK).view());
  measure(state, {{"GB/s", 2 * kPackedBytes}},
          [&] { benchmark::DoNotOptimize(pack_weights(w.view()).data()); });
  set_threads(0);
}

const bool registered = [] {
  const auto add_read = [](const char* way, auto read) {
    add(std::string("gemm_limits/read_") + way,
        [read](benchmark::State& s) { read_memory(s, read); });
  };
  add_read("plain", read_lines<1, 1 << 16, 0, 0>);
  add_read("near", read_lines<2, 1 << 16, 0, 2048>);
  add_read("two_steps", read_lines<2, 1 << 16, 4096, 1024>);  // as the kernels do
  add_read("far_apart", read_lines<4, 9 << 15, 0, 4096>);
  add("gemm_limits/copy", copy_memory);
  for (const bench::Peak& p : bench::peaks())
    add("gemm_limits/" + p.name, [p](benchmark::State& s) { peak(s, p); });
  for (const BackendInfo& b : backends()) {
    if (!b.available || b.name == "reference" || b.name == "cpu") continue;
    const auto name = [&](const char* kind, std::int64_t m) {
      return "gemm/" + b.name + "/" + kind + "/M:" + std::to_string(m);
    };
    for (const std::int64_t m : {1, 4, 16, 64, 256, 512}) {
      add(name("w4a4", m), [b, m](benchmark::State& s) { w4a4(s, b.name, m); });
      add(name("w4a16", m), [b, m](benchmark::State& s) { w4a16(s, b.name, DType::bf16, m); });
    }
    add(name("w4a16_f32", 256), [b](benchmark::State& s) { w4a16(s, b.name, DType::f32, 256); });
    add("gemm_pack/" + b.name + "/bf16", [b](benchmark::State& s) { pack(s, b.name); });
  }
  add("gemm_pack/nvfp4", pack_codes);
  return true;
}();

}  // namespace
}  // namespace nvfp4
