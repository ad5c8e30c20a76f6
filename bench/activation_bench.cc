// Measures operations fused with quantization against the copy bandwidth of the same run. "of copy"
// is the rate of bytes read and written, divided by that of memcpy. memcpy is measured just before
// with as many threads. Argument: threads. The input is [4096, 7168] in BF16, and global scales are
// measured for each row.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench_matrix.h"
#include "nvfp4/activation.h"
#include "nvfp4/runtime.h"

namespace nvfp4 {
namespace {

constexpr std::int64_t kRows = 4096, kCols = 7168;

/// Returns the bytes read and written per second, the best of several copies.
double copy_bandwidth(std::size_t threads) {
  constexpr std::size_t kBytes = std::size_t{1} << 27;
  static std::vector<char> from(kBytes, 1), to(kBytes, 2);
  const std::size_t part = kBytes / threads;
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::jthread> pool;
    for (std::size_t t = 0; t < threads; ++t)
      pool.emplace_back(
          [&, t] { std::memcpy(to.data() + t * part, from.data() + t * part, part); });
    pool.clear();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2.0 * static_cast<double>(kBytes) / time.count());
  }
  return best;
}

struct Operation {
  std::string name;
  std::int64_t cols;         ///< columns of the result
  std::int64_t input_bytes;  ///< bytes of an input row, without output
  std::function<void(const QuantizeOptions&, const QuantizedSpan&, std::int64_t rows)> run;
};

std::vector<Operation> operations() {
  static const Matrix x = bench::gaussian(DType::bf16, kRows, kCols, 1);
  static const Matrix streams = bench::gaussian(DType::bf16, kRows, 4 * kCols, 2);
  static const Matrix mix = bench::gaussian(DType::f32, kRows, 4, 3);
  static const Matrix residual = bench::gaussian(DType::bf16, kRows, kCols, 4);
  static Matrix residual_out(DType::bf16, kRows, kCols);
  static const std::vector<float> weight(kCols, 1.0f), routing_weights(kRows * 8, 0.125f);
  static std::vector<float> rstd(kRows), staged_weights(kRows * 8);
  static const std::vector<std::int32_t> ids(kRows * 8, 3);
  static std::vector<std::int64_t> staged_ids(kRows * 8);
  const auto top = [](MatrixView m, std::int64_t rows) {
    m.rows = rows;
    return m;
  };
  return {
      {"quantize", kCols, 2 * kCols,
       [=](const QuantizeOptions& o, const QuantizedSpan& out, std::int64_t rows) {
         quantize_into(top(x.view(), rows), out, o);
       }},
      {"rms_norm", kCols, 2 * kCols,
       [=](const QuantizeOptions& o, const QuantizedSpan& out, std::int64_t rows) {
         rms_norm_quantize_into(top(x.view(), rows), weight, out, {.rstd = rstd.data()}, o);
       }},
      {"residual_rms_norm", kCols, 6 * kCols,
       [=](const QuantizeOptions& o, const QuantizedSpan& out, std::int64_t rows) {
         MatrixSpan sum = residual_out.span();
         sum.rows = rows;
         rms_norm_quantize_into(top(x.view(), rows), weight, out,
                                {.residual = top(residual.view(), rows), .residual_out = sum}, o);
       }},
      {"mix4_rms_norm", kCols, 8 * kCols,
       [=](const QuantizeOptions& o, const QuantizedSpan& out, std::int64_t rows) {
         mix_rms_norm_quantize_into(top(streams.view(), rows), top(mix.view(), rows), weight, out,
                                    {}, o);
       }},
      {"swiglu", kCols / 2, 2 * kCols,
       [=](const QuantizeOptions& o, const QuantizedSpan& out, std::int64_t rows) {
         swiglu_quantize_into(top(x.view(), rows), out, {}, o);
       }},
      {"swiglu_interleaved8", kCols / 2, 2 * kCols,
       [=](const QuantizeOptions& o, const QuantizedSpan& out, std::int64_t rows) {
         swiglu_quantize_into(top(x.view(), rows), out, {.interleave = 8}, o);
       }},
      {"stage_moe_top8", kCols, 2 * kCols + 8 * (4 + 4 + 8 + 4),
       [=](const QuantizeOptions& options, const QuantizedSpan& out, std::int64_t rows) {
         const Routing routing{.ids = ids.data(),
                               .id_stride = 8,
                               .weights = routing_weights.data(),
                               .weight_stride = 8,
                               .rows = rows,
                               .top_k = 8};
         stage_moe_into(top(x.view(), rows), routing, out,
                        {staged_ids.data(), 8, staged_weights.data(), 8}, options);
       }},
  };
}

void run_operation(benchmark::State& state, const Operation& op, QuantizeOptions options) {
  set_threads(static_cast<int>(state.range(0)));
  const auto shape = [&](std::int64_t rows) {
    return QuantizedShape{
        .rows = rows, .cols = op.cols, .layout = options.layout, .scope = options.scope};
  };
  QuantizedMatrix got(shape(16)), want(shape(16)), out(shape(kRows));
  op.run(options, got.span(), 16);  // a check before timing
  const std::string backend(options.backend);
  options.backend = "reference";
  op.run(options, want.span(), 16);
  if (!(got == want)) return state.SkipWithError("wrong result");
  options.backend = backend;
  const double copy = copy_bandwidth(static_cast<std::size_t>(state.range(0)));
  const std::int64_t bytes =
      kRows * op.input_bytes + out.shape().code_bytes() + out.shape().scale_bytes() + 4 * kRows;
  double best = INFINITY;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    op.run(options, out.span(), kRows);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
    state.SetIterationTime(time.count());
  }
  state.counters["best GB/s"] = static_cast<double>(bytes) * 1e-9 / best;
  state.counters["copy GB/s"] = copy * 1e-9;
  state.counters["of copy"] = static_cast<double>(bytes) / best / copy;
}

/// Measures X^T X in blocks, and the scales that it determines.
void run_gram(benchmark::State& state) {
  set_threads(static_cast<int>(state.range(0)));
  const Matrix x = bench::gaussian(DType::bf16, kRows, kCols, 1);
  Matrix h(DType::f32, kCols, kBlock);
  for (auto _ : state) gram_into(x.view(), h.span());
}
void run_hessian(benchmark::State& state) {
  set_threads(static_cast<int>(state.range(0)));
  const Matrix x = bench::gaussian(DType::bf16, 256, kCols, 1);
  Matrix h(DType::f32, kCols, kBlock);
  gram_into(x.view(), h.span());
  const QuantizeOptions options{.quantizer = Quantizer::mse, .hessian = h.view()};
  QuantizedMatrix out = quantize(x.view(), options);
  for (auto _ : state) quantize_into(x.view(), out.span(), options);
  state.counters["Melem/s"] = benchmark::Counter(static_cast<double>(x.view().size()) * 1e-6,
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

const bool registered = [] {
  for (const BackendInfo& b : backends()) {
    if (!b.available || b.name == "reference" || b.name == "cpu") continue;
    for (const Operation& op : operations())
      for (const int threads : {1, 2})
        benchmark::RegisterBenchmark(
            ("activation/" + b.name + "/" + op.name).c_str(),
            [op, name = b.name](benchmark::State& s) {
              run_operation(
                  s, op,
                  {.quantizer = Quantizer::max, .scope = GlobalScope::vector, .backend = name});
            })
            ->Arg(threads)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
  }
  for (const int threads : {1, 2}) {
    benchmark::RegisterBenchmark("gram/[4096, 7168]", run_gram)
        ->Arg(threads)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark("hessian/[256, 7168]", run_hessian)
        ->Arg(threads)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace nvfp4
