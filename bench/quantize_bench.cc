// Quantize and dequantize beside the copy bandwidth of the same run.
// Arguments: threads. Input 8192 x 8192, so that it comes from memory.
#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench_matrix.h"
#include "nvfp4/runtime.h"

namespace nvfp4 {
namespace {

constexpr std::int64_t kRows = 8192, kCols = 8192;

void report(benchmark::State& state, std::int64_t elements, std::int64_t bytes) {
  state.counters["Gelem/s"] = benchmark::Counter(static_cast<double>(elements) * 1e-9,
                                                 benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(bytes) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

void copy(benchmark::State& state) {
  const auto threads = static_cast<std::size_t>(state.range(0));
  constexpr std::size_t kBytes = std::size_t{1} << 28;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  const std::size_t part = kBytes / threads;
  for (auto _ : state) {
    std::vector<std::jthread> pool;
    for (std::size_t t = 0; t < threads; ++t)
      pool.emplace_back(
          [&, t] { std::memcpy(to.data() + t * part, from.data() + t * part, part); });
    pool.clear();
    benchmark::DoNotOptimize(to.data());
  }
  report(state, 0, 2 * static_cast<std::int64_t>(kBytes));
}
BENCHMARK(copy)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

/// What this machine can read: the largest magnitude of 256 MiB, two instructions a vector.
void read(benchmark::State& state) {
  set_threads(static_cast<int>(state.range(0)));
  const Matrix x = bench::gaussian(DType::f32, kRows, kCols);
  for (auto _ : state) benchmark::DoNotOptimize(amax(x.view()));
  report(state, kRows * kCols, kRows * kCols * 4);
}
BENCHMARK(read)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

struct QuantizeCase {
  std::string backend;
  Quantizer quantizer;
  DType dtype;
  bool measured;
  BlockAxis axis = BlockAxis::rows;
};

void quantize_case(benchmark::State& state, const QuantizeCase& c) {
  set_threads(static_cast<int>(state.range(0)));
  const Matrix x = bench::gaussian(c.dtype, kRows, kCols);
  const GlobalScale global = GlobalScale::from_amax(amax(x.view(), c.backend), c.quantizer);
  QuantizeOptions options{.quantizer = c.quantizer, .axis = c.axis, .backend = c.backend};
  if (!c.measured) options.global = {&global, 1};
  // Check before timing.
  MatrixView slice = x.view();
  slice.rows = 64;
  QuantizeOptions reference = options;
  reference.backend = "reference";
  if (!(quantize(slice, options) == quantize(slice, reference)))
    return state.SkipWithError("wrong result");
  QuantizedMatrix out = quantize(x.view(), options);
  for (auto _ : state) quantize_into(x.view(), out.span(), options);
  report(state, kRows * kCols,
         kRows * kCols * dtype_size(c.dtype) * (c.measured ? 2 : 1) + out.shape().code_bytes() +
             out.shape().scale_bytes());
}

void dequantize_case(benchmark::State& state, const std::string& backend, DType dtype) {
  set_threads(static_cast<int>(state.range(0)));
  const QuantizedMatrix q = quantize(bench::gaussian(DType::bf16, kRows, kCols).view());
  Matrix out(dtype, kRows, kCols);
  for (auto _ : state) dequantize_into(q.view(), out.span(), backend);
  report(state, kRows * kCols,
         kRows * kCols * dtype_size(dtype) + q.shape().code_bytes() + q.shape().scale_bytes());
}

const bool registered = [] {
  const auto add = [](const std::string& name, std::function<void(benchmark::State&)> f) {
    for (const int threads : {1, 2})
      benchmark::RegisterBenchmark(name.c_str(), f)
          ->Arg(threads)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
  };
  for (const BackendInfo& b : backends()) {
    if (!b.available || b.name == "reference" || b.name == "cpu") continue;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Quantizer q : {Quantizer::max, Quantizer::four_over_six, Quantizer::mse})
        for (const bool measured : {false, true}) {
          const QuantizeCase c{b.name, q, dtype, measured};
          add("quantize/" + b.name + "/" + std::string(quantizer_name(q)) + "/" +
                  std::string(dtype_name(dtype)) + (measured ? "/measured" : "/given"),
              [c](benchmark::State& s) { quantize_case(s, c); });
        }
    const QuantizeCase columns{b.name, Quantizer::max, DType::bf16, false, BlockAxis::columns};
    add("quantize/" + b.name + "/max/bf16/given/columns",
        [columns](benchmark::State& s) { quantize_case(s, columns); });
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      add("dequantize/" + b.name + "/" + std::string(dtype_name(dtype)),
          [name = b.name, dtype](benchmark::State& s) { dequantize_case(s, name, dtype); });
  }
  return true;
}();

}  // namespace
}  // namespace nvfp4
