// Measures quantize and dequantize against the copy bandwidth of the same run.
// Argument: threads. The input is 8192 x 8192, so it comes from memory. The rates are those of the
// fastest call.
#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench_matrix.h"
#include "fastest.h"
#include "nvfp4/runtime.h"

namespace nvfp4 {
namespace {

constexpr std::int64_t kRows = 8192, kCols = 8192;

std::vector<bench::Work> work(std::int64_t elements, std::int64_t bytes) {
  return {{"Gelem/s", static_cast<double>(elements)}, {"GB/s", static_cast<double>(bytes)}};
}

/// Copies between two matrices, which have the same memory as those of a user of the library.
void copy(benchmark::State& state) {
  const auto threads = static_cast<std::size_t>(state.range(0));
  const Matrix from = bench::gaussian(DType::f32, kRows, kCols);
  Matrix to(DType::f32, kRows, kCols);
  const auto bytes = static_cast<std::size_t>(from.view().size()) * sizeof(float);
  const std::size_t part = bytes / threads;
  bench::measure(state, {{"GB/s", 2.0 * static_cast<double>(bytes)}}, [&] {
    std::vector<std::jthread> pool;
    for (std::size_t t = 0; t < threads; ++t)
      pool.emplace_back(
          [&, t] { std::memcpy(to.data<char>() + t * part, from.data<char>() + t * part, part); });
    pool.clear();
    benchmark::DoNotOptimize(to.data<char>());
  });
}
BENCHMARK(copy)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

/// Measures the read bandwidth: the largest magnitude of 256 MiB, with two instructions per vector.
void read(benchmark::State& state) {
  set_threads(static_cast<int>(state.range(0)));
  const Matrix x = bench::gaussian(DType::f32, kRows, kCols);
  bench::measure(state, work(kRows * kCols, kRows * kCols * 4),
                 [&] { benchmark::DoNotOptimize(amax(x.view())); });
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
  bench::measure(state,
                 work(kRows * kCols, kRows * kCols * dtype_size(c.dtype) * (c.measured ? 2 : 1) +
                                         out.shape().code_bytes() + out.shape().scale_bytes()),
                 [&] { quantize_into(x.view(), out.span(), options); });
}

void dequantize_case(benchmark::State& state, const std::string& backend, DType dtype) {
  set_threads(static_cast<int>(state.range(0)));
  const QuantizedMatrix q =
      quantize(bench::gaussian(DType::bf16, kRows, kCols).view(), {.quantizer = Quantizer::max});
  Matrix out(dtype, kRows, kCols);
  bench::measure(state,
                 work(kRows * kCols, kRows * kCols * dtype_size(dtype) + q.shape().code_bytes() +
                                         q.shape().scale_bytes()),
                 [&] { dequantize_into(q.view(), out.span(), backend); });
}

/// Measures the error of 2^18 elements in a core's cache. A checkpoint is measured in such chunks.
void error_case(benchmark::State& state, const std::string& backend, DType dtype) {
  set_threads(static_cast<int>(state.range(0)));
  const Matrix x = bench::gaussian(dtype, 64, 4096);
  const QuantizedMatrix q = quantize(x.view(), {.quantizer = Quantizer::max});
  const QuantizationError reference = quantization_error(x.view(), q.view(), "reference");
  if (quantization_error(x.view(), q.view(), backend).squared_error != reference.squared_error)
    return state.SkipWithError("wrong result");
  bench::measure(
      state,
      work(x.view().size(),
           x.view().size() * dtype_size(dtype) + q.shape().code_bytes() + q.shape().scale_bytes()),
      [&] { benchmark::DoNotOptimize(quantization_error(x.view(), q.view(), backend)); });
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
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      add("error/" + b.name + "/" + std::string(dtype_name(dtype)),
          [name = b.name, dtype](benchmark::State& s) { error_case(s, name, dtype); });
  }
  return true;
}();

}  // namespace
}  // namespace nvfp4
