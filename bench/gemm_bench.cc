// Measures GEMMs against the limits of the machine in the same run: reading from memory, and the
// peaks of the instructions. N = 4096, K = 7168; the copies of the weights exceed all caches.
// Names: gemm/<backend>/<w4a4 or w4a16>/M:<M>/threads:<threads>. gemm_share is M = 1 as a share of
// reading, and packing as a share of copying, measured in turn.
#include <benchmark/benchmark.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench_matrix.h"
#include "bench_peaks.h"
#include "fastest.h"
#include "memory_limits.h"
#include "nvfp4/gemm.h"
#include "nvfp4/runtime.h"

namespace nvfp4 {
namespace {

using bench::measure;
using bench::Memory;
using bench::Work;

constexpr std::int64_t kN = 4096, kK = 7168;
constexpr std::size_t kCopies = 72;  // 1.2 GB
constexpr std::size_t kCopyBytes = kN * kK * 9 / 16;

const std::vector<PackedWeights>& weight_copies() {
  static const std::vector<PackedWeights> copies = [] {
    const QuantizedMatrix q =
        quantize(bench::gaussian(DType::bf16, kN, kK).view(), {.quantizer = Quantizer::max});
    std::vector<PackedWeights> list;
    for (std::size_t i = 0; i < kCopies; ++i) list.push_back(pack_weights(q.view()));
    return list;
  }();
  return copies;
}

/// Returns the copy whose last read is the longest ago. No cache holds it.
const PackedWeights& next_copy() {
  static std::size_t next = 0;
  return weight_copies()[next++ % kCopies];
}

benchmark::internal::Benchmark* add(const std::string& name,
                                    const std::function<void(benchmark::State&)>& f) {
  return benchmark::RegisterBenchmark(name.c_str(), f)
      ->ArgName("threads")
      ->Arg(1)
      ->Arg(2)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

/// Reads one copy of the weights after the other, as a GEMM with M = 1 does.
Memory read_copies(bench::ReadLines* read) {
  weight_copies();
  return {
      double{kCopyBytes}, [read](bench::Team& team) {
        const std::size_t words = kCopyBytes / sizeof(std::uint64_t) / team.size();
        const auto* data = reinterpret_cast<const std::uint64_t*>(next_copy().memory().data());
        team.run([&](std::size_t t) { benchmark::DoNotOptimize(read(data + words * t, words)); });
      }};
}

void limit(benchmark::State& state, const std::function<Memory()>& get) {
  const Memory memory = get();
  bench::Team team(static_cast<std::size_t>(state.range(0)));
  measure(state, {{"GB/s", memory.bytes}}, [&] { memory.run(team); });
}

void peak(benchmark::State& state, const bench::Peak& p) {
  const auto threads = static_cast<std::size_t>(state.range(0));
  measure(state, {{"GFLOP/s", p.operations * static_cast<double>(threads)}}, [&] {
    std::vector<std::jthread> pool;
    for (std::size_t t = 1; t < threads; ++t) pool.emplace_back(p.run);
    p.run();
  });
}

std::int64_t rows_of(const MatrixView& x) { return x.rows; }
std::int64_t rows_of(const QuantizedView& x) { return x.shape.rows; }

GemmDescription description_of(const MatrixView& x, DType out, const std::string& backend) {
  return {.m = x.rows, .x = x.dtype, .out = out, .backend = backend};
}
GemmDescription description_of(const QuantizedView& x, DType out, const std::string& backend) {
  return {.m = x.shape.rows, .scheme = Scheme::w4a4, .out = out, .backend = backend};
}

template <class X>
void multiply(const X& x, const PackedWeights& w, MatrixSpan out, const std::string& backend) {
  gemm(plan_gemm(w, description_of(x, out.dtype, backend)), {.x = x, .weights = w, .out = out});
}

/// Checks a small GEMM first, since the rate of a wrong kernel is worthless.
template <class X>
bool is_right(const X& x, const PackedWeights& w, const std::string& backend) {
  Matrix got(DType::f32, rows_of(x), w.rows()), want(DType::f32, rows_of(x), w.rows());
  multiply(x, w, got.span(), backend);
  multiply(x, w, want.span(), "reference");
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
  const PackedWeights small =
      pack_weights(bench::gaussian(DType::bf16, 48, kK, 2).view(), {.quantizer = Quantizer::max});
  if (!is_right(some, small, backend)) return state.SkipWithError("wrong result");
  weight_copies();
  Matrix out(DType::bf16, m, kN);
  measure(state,
          {{"GFLOP/s", 2.0 * static_cast<double>(m * kN * kK)}, {"GB/s", double{kCopyBytes}}},
          [&] { multiply(x, next_copy(), out.span(), backend); });
  set_threads(0);
}

void w4a16(benchmark::State& state, const std::string& backend, DType dtype, std::int64_t m) {
  const Matrix x = bench::gaussian(dtype, m, kK, 3);
  MatrixView some = x.view();
  some.rows = std::min<std::int64_t>(m, 20);
  run_gemm(state, backend, x.view(), some, m);
}

void w4a4(benchmark::State& state, const std::string& backend, std::int64_t m) {
  const QuantizedMatrix x =
      quantize(bench::gaussian(DType::bf16, m, kK, 3).view(), {.quantizer = Quantizer::max});
  QuantizedView some = x.view();
  some.shape.rows = std::min<std::int64_t>(m, 20);
  run_gemm(state, backend, x.view(), some, m);
}

constexpr double kPackedBytes = 8.0 * kCopyBytes;

/// Measures `call`, which transfers `bytes`, in turn with the fastest of several ways to transfer
/// bytes. Other work on the machine then affects both in the same way.
void share(benchmark::State& state, double bytes, const std::function<void()>& call,
           const std::vector<Memory>& limits) {
  std::vector<double> calls;
  std::vector<std::vector<double>> rates(limits.size());
  for (auto _ : state) {
    call();  // this wakes up the threads
    for (int i = 0; i < 3; ++i) calls.push_back(bytes / bench::seconds_of(call));
    // Wait until the pool's threads have stopped spinning.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    bench::Team team(static_cast<std::size_t>(state.range(0)));
    for (std::size_t i = 0; i < limits.size(); ++i) {
      team.run([](std::size_t) {});
      rates[i].push_back(limits[i].bytes / bench::seconds_of([&] { limits[i].run(team); }));
    }
  }
  double best = 0;
  for (std::vector<double>& r : rates) best = std::max(best, bench::median(r));
  state.counters["share"] = bench::median(calls) / best;
}

void share_of_reading(benchmark::State& state, const std::string& backend, bool quantized) {
  set_threads(static_cast<int>(state.range(0)));
  const Matrix x = bench::gaussian(DType::bf16, 1, kK, 3);
  const QuantizedMatrix q = quantize(x.view(), {.quantizer = Quantizer::max});
  Matrix out(DType::bf16, 1, kN);
  std::vector<Memory> limits;
  for (const auto& [name, read] : bench::ways_to_read<kCopyBytes>())
    limits.push_back(read_copies(read));
  share(
      state, double{kCopyBytes},
      [&] {
        if (quantized)
          multiply(q.view(), next_copy(), out.span(), backend);
        else
          multiply(x.view(), next_copy(), out.span(), backend);
      },
      limits);
  set_threads(0);
}

/// Bytes read and written when BF16 weights are packed.
constexpr double kPackingBytes = 8.0 * kN * kK * 2 + kPackedBytes;

void share_of_copying(benchmark::State& state, const std::string& backend) {
  set_threads(static_cast<int>(state.range(0)));
  const Matrix w = bench::gaussian(DType::bf16, 8 * kN, kK);
  share(state, kPackingBytes,
        [&] {
          benchmark::DoNotOptimize(
              pack_weights(w.view(), {.quantizer = Quantizer::max, .backend = backend})
                  .memory()
                  .data());
        },
        {bench::copy_gigabyte()});
  set_threads(0);
}

void pack(benchmark::State& state, const std::string& backend) {
  set_threads(static_cast<int>(state.range(0)));
  const Matrix w = bench::gaussian(DType::bf16, 8 * kN, kK);
  // The host of a virtual machine may have to provide new memory in the first call. That would take
  // so long that no other call would be made.
  benchmark::DoNotOptimize(
      pack_weights(w.view(), {.quantizer = Quantizer::max, .backend = backend}).memory().data());
  measure(state, {{"GB/s", kPackingBytes}}, [&] {
    benchmark::DoNotOptimize(
        pack_weights(w.view(), {.quantizer = Quantizer::max, .backend = backend}).memory().data());
  });
  set_threads(0);
}

/// Measures packing of a checkpoint's codes and scales, in bytes read and written.
void pack_codes(benchmark::State& state) {
  set_threads(static_cast<int>(state.range(0)));
  const QuantizedMatrix w =
      quantize(bench::gaussian(DType::bf16, 8 * kN, kK).view(), {.quantizer = Quantizer::max});
  measure(state, {{"GB/s", 2 * kPackedBytes}},
          [&] { benchmark::DoNotOptimize(pack_weights(w.view()).memory().data()); });
  set_threads(0);
}

const bool registered = [] {
  for (const auto& [way, read] : bench::ways_to_read<kCopyBytes>())
    add("gemm_limits/read_" + way,
        [read](benchmark::State& s) { limit(s, [read] { return read_copies(read); }); });
  add("gemm_limits/copy", [](benchmark::State& s) { limit(s, bench::copy_gigabyte); });
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
    for (const bool quantized : {true, false})
      add("gemm_share/" + b.name + (quantized ? "/w4a4" : "/w4a16"),
          [=](benchmark::State& s) { share_of_reading(s, b.name, quantized); });
    add("gemm_share/" + b.name + "/pack", [b](benchmark::State& s) {
      share_of_copying(s, b.name);
    })->Iterations(4);  // long ones: the time would allow one
  }
  add("gemm_pack/nvfp4", pack_codes);
  return true;
}();

}  // namespace
}  // namespace nvfp4
