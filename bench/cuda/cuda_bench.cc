// Measures quantization on the GPU against the copy bandwidth of the same run.
// usage: nvfp4_cuda_bench [--json FILE] [NAME...]    only rows whose name contains a NAME
//
// A CUDA graph holds one call for each copy of the inputs. The copies together exceed the L2 cache.
// The time is that of a replay divided by the number of calls, the median of several replays.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../bench_matrix.h"
#include "name_filter.h"
#include "nvfp4/activation.h"
#include "nvfp4/error.h"
#include "ops/error_parts.h"
#include "program.h"

namespace nvfp4 {
namespace {

using bench::check;
using bench::measure;

using bench::kRotated;
constexpr std::int64_t kMostCopies = 8192;
constexpr int kReplays = 15;
const Device kGpu = Device::cuda();

struct Row {
  std::string name;
  double us = 0, floor_us = 0, aim_us = 0, peer_us = 0;
  std::int64_t bytes = 0;
};

class Bench {
 public:
  explicit Bench(bench::NameFilter names) : names_(std::move(names)) {}

  bool wanted(std::string_view name) { return names_.wanted(name); }
  /// Ends the run. Throws ValueError for a word of the command line that matched no row.
  void finish() const { names_.require_found(); }
  void add(const std::string& name, std::int64_t copies, std::int64_t bytes, double aim,
           double peer, const std::function<void(std::int64_t, Stream)>& call) {
    const double us = measure(copies, call);
    rows_.push_back({name, us, static_cast<double>(bytes) / copy_rate_ * 1e6, aim, peer, bytes});
    const Row& r = rows_.back();
    fmt::print("{:<52} {:>9.2f} {:>9.2f} {:>9} {:>9} {:>8.0f} {}\n", r.name, r.us, r.floor_us,
               aim > 0 ? fmt::format("{:.1f}", aim) : "-",
               peer > 0 ? fmt::format("{:.1f}", peer) : "-", static_cast<double>(bytes) / us * 1e-3,
               aim > 0 ? (us <= aim ? "reached" : "missed") : "");
    std::fflush(stdout);
  }
  void measure_copy() {
    constexpr std::int64_t kBytes = std::int64_t{1} << 32;
    const Buffer from(kBytes, kGpu), to(kBytes, kGpu);
    // This is not in a graph, whose copy nodes are slower than a copy on a stream.
    cudaEvent_t start = nullptr, stop = nullptr;
    check(cudaEventCreate(&start));
    check(cudaEventCreate(&stop));
    float best_ms = INFINITY;
    for (int i = 0; i < kReplays; ++i) {
      check(cudaEventRecord(start, nullptr));
      check(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(kBytes),
                            cudaMemcpyDefault, nullptr));
      check(cudaEventRecord(stop, nullptr));
      check(cudaEventSynchronize(stop));
      float ms = 0;
      check(cudaEventElapsedTime(&ms, start, stop));
      best_ms = std::min(best_ms, ms);
    }
    check(cudaEventDestroy(start));
    check(cudaEventDestroy(stop));
    const double us = 1e3 * static_cast<double>(best_ms);
    copy_rate_ = 2.0 * static_cast<double>(kBytes) / us * 1e6;
    fmt::print("copy, 4 GiB: {:.2f} TB/s read + written\n", copy_rate_ * 1e-12);
    fmt::print("{:<52} {:>9} {:>9} {:>9} {:>9} {:>8}\n", "us for a call", "ours", "bytes/copy",
               "aim", "peer", "GB/s");
  }
  nlohmann::json json() const {
    nlohmann::json j = bench::describe_gpu();
    j["copy_bytes_per_s"] = copy_rate_;
    for (const Row& r : rows_)
      j["rows"].push_back({{"name", r.name},
                           {"us", r.us},
                           {"bytes", r.bytes},
                           {"bytes_over_copy_rate_us", r.floor_us},
                           {"aim_us", r.aim_us},
                           {"peer_us", r.peer_us}});
    return j;
  }

 private:
  bench::NameFilter names_;
  std::vector<Row> rows_;
  double copy_rate_ = 1;
};

/// Copies of a matrix, one below the other in one allocation.
struct Copies {
  Matrix memory;
  std::int64_t count, rows;

  Copies(DType dtype, std::int64_t rows_, std::int64_t cols, std::int64_t count_)
      : memory(dtype, count_ * rows_, cols, kGpu), count(count_), rows(rows_) {
    const Matrix host = bench::gaussian(dtype, rows, cols);
    for (std::int64_t i = 0; i < count; ++i) copy(host.view(), (*this)[i]);
    synchronize(kGpu);
  }
  MatrixSpan operator[](std::int64_t i) {
    MatrixSpan s = memory.span();
    s.data = static_cast<char*>(s.data) + i * rows * s.stride * dtype_size(s.dtype);
    s.rows = rows;
    return s;
  }
};

std::int64_t copies_of(std::int64_t bytes) {
  return std::clamp<std::int64_t>(ceil_div(kRotated, bytes), 3, kMostCopies);
}

/// Returns a result matrix for each copy.
std::vector<QuantizedMatrix> outputs(const QuantizedShape& shape, std::int64_t count) {
  std::vector<QuantizedMatrix> list;
  list.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < std::min<std::int64_t>(count, 64); ++i)
    list.emplace_back(shape, kGpu);
  return list;
}
QuantizedSpan at(std::vector<QuantizedMatrix>& list, std::int64_t i) {
  return list[static_cast<std::size_t>(i) % list.size()].span();
}

std::int64_t quantized_bytes(std::int64_t rows, std::int64_t cols) {
  return rows * cols / 2 + rows * cols / 16;
}

void bench_quantize(Bench& b, std::int64_t rows, std::int64_t cols, double given_aim,
                    double given_peer, double tensor_aim, double tensor_peer, double row_aim) {
  const std::string shape = fmt::format("[{},{}]", rows, cols);
  const std::int64_t in = rows * cols * 2, out = quantized_bytes(rows, cols);
  const std::int64_t n = copies_of(in);
  Copies x(DType::bf16, rows, cols, n);
  const GlobalScale global = GlobalScale::from_amax(0.1f, Quantizer::max);
  auto q = outputs({.rows = rows, .cols = cols}, n);
  auto qv = outputs({.rows = rows, .cols = cols, .scope = GlobalScope::vector}, n);
  if (b.wanted("quantize given"))
    b.add("quantize given " + shape, n, in + out, given_aim, given_peer,
          [&](std::int64_t i, Stream s) {
            quantize_into(x[i], at(q, i),
                          {.quantizer = Quantizer::max, .global = {&global, 1}, .stream = s});
          });
  if (b.wanted("quantize tensor"))
    b.add("quantize tensor " + shape, n, 2 * in + out, tensor_aim, tensor_peer,
          [&](std::int64_t i, Stream s) {
            quantize_into(x[i], at(q, i), {.quantizer = Quantizer::max, .stream = s});
          });
  if (b.wanted("quantize row"))
    b.add("quantize row " + shape, n, in + out, row_aim, 0, [&](std::int64_t i, Stream s) {
      quantize_into(x[i], at(qv, i),
                    {.quantizer = Quantizer::max, .scope = GlobalScope::vector, .stream = s});
    });
  if (b.wanted("amax"))
    b.add("amax " + shape, n, in, 0, 0, [&](std::int64_t i, Stream s) {
      amax_into(x[i], at(q, i).global_scale, GlobalScope::tensor, BlockAxis::rows, {}, s);
    });
  if (b.wanted("error")) {
    for (auto& one : q)
      quantize_into(x[0], one.span(), {.quantizer = Quantizer::max, .global = {&global, 1}});
    const std::int64_t bytes =
        error_part_count(q[0].shape()) * static_cast<std::int64_t>(sizeof(QuantizationError));
    const Buffer parts(bytes, kGpu);
    b.add("error " + shape, n, in + out + bytes, 0, 0, [&](std::int64_t i, Stream s) {
      error_parts_into(x[i], at(q, i), static_cast<QuantizationError*>(parts.data()), s);
    });
  }
  if (b.wanted("dequantize")) {
    for (auto& one : q)
      quantize_into(x[0], one.span(), {.quantizer = Quantizer::max, .global = {&global, 1}});
    b.add("dequantize bf16 " + shape, n, in + out, rows == 8192 ? 42 : 0, rows == 8192 ? 106 : 0,
          [&](std::int64_t i, Stream s) { dequantize_into(at(q, i), x[i], {}, s); });
  }
}

void bench_rms_norm(Bench& b, std::int64_t rows, std::int64_t cols, double aim, double peer) {
  if (!b.wanted("rms_norm")) return;
  const std::int64_t in = rows * cols * 2, out = quantized_bytes(rows, cols);
  const std::int64_t n = copies_of(in);
  Copies x(DType::bf16, rows, cols, n), residual(DType::bf16, rows, cols, n);
  const Matrix weight = to_device(bench::gaussian(DType::f32, 1, cols).view(), kGpu);
  const std::span<const float> w(weight.data<float>(), static_cast<std::size_t>(cols));
  auto q = outputs({.rows = rows, .cols = cols, .scope = GlobalScope::vector}, n);
  const std::string shape = fmt::format("[{},{}]", rows, cols);
  b.add("rms_norm + quantize row " + shape, n, in + out, aim, peer, [&](std::int64_t i, Stream s) {
    rms_norm_quantize_into(x[i], w, at(q, i), {}, {.scope = GlobalScope::vector, .stream = s});
  });
  b.add("residual + rms_norm + quantize row " + shape, n, 3 * in + out, 0, 0,
        [&](std::int64_t i, Stream s) {
          rms_norm_quantize_into(x[i], w, at(q, i),
                                 {.residual = residual[i], .residual_out = residual[i]},
                                 {.scope = GlobalScope::vector, .stream = s});
        });
}

void bench_mix(Bench& b, std::int64_t rows, std::int64_t cols) {
  if (!b.wanted("mix")) return;
  const std::int64_t in = rows * cols * 2 * 4, out = quantized_bytes(rows, cols);
  const std::int64_t n = copies_of(in);
  Copies x(DType::bf16, rows, 4 * cols, n);
  const Matrix weight = to_device(bench::gaussian(DType::f32, 1, cols).view(), kGpu);
  const Matrix mix = to_device(bench::gaussian(DType::f32, rows, 4).view(), kGpu);
  const std::span<const float> w(weight.data<float>(), static_cast<std::size_t>(cols));
  auto q = outputs({.rows = rows, .cols = cols, .scope = GlobalScope::vector}, n);
  b.add(fmt::format("mix 4 + rms_norm + quantize row [{},{}]", rows, cols), n, in + out, 0, 0,
        [&](std::int64_t i, Stream s) {
          mix_rms_norm_quantize_into(x[i], mix.view(), w, at(q, i), {},
                                     {.scope = GlobalScope::vector, .stream = s});
        });
}

void bench_swiglu(Bench& b, std::int64_t rows, std::int64_t cols, int interleave, double aim,
                  double peer) {
  if (!b.wanted("swiglu")) return;
  const std::int64_t in = rows * cols * 4, out = quantized_bytes(rows, cols);
  const std::int64_t n = copies_of(in);
  Copies x(DType::bf16, rows, 2 * cols, n);
  auto q = outputs({.rows = rows, .cols = cols, .scope = GlobalScope::vector}, n);
  auto qt = outputs({.rows = rows, .cols = cols}, n);
  const GlobalScale global = GlobalScale::from_amax(0.1f, Quantizer::max);
  const std::string shape =
      fmt::format("[{},2*{}]{}", rows, cols, interleave ? fmt::format(" by {}", interleave) : "");
  b.add("swiglu + quantize given " + shape, n, in + out, aim, peer, [&](std::int64_t i, Stream s) {
    swiglu_quantize_into(x[i], at(qt, i), {.interleave = interleave},
                         {.global = {&global, 1}, .stream = s});
  });
  b.add("swiglu + quantize row " + shape, n, in + out, aim, peer, [&](std::int64_t i, Stream s) {
    swiglu_quantize_into(x[i], at(q, i), {.interleave = interleave},
                         {.scope = GlobalScope::vector, .stream = s});
  });
}

void bench_staging(Bench& b, std::int64_t rows, std::int64_t cols, double aim, double peer) {
  if (!b.wanted("staging")) return;
  constexpr std::int64_t kTopK = 8;
  const std::int64_t in = rows * cols * 2;
  const std::int64_t bytes = in + quantized_bytes(rows, cols) + rows * kTopK * (4 + 8 + 4 + 4);
  const std::int64_t n = copies_of(in);
  Copies x(DType::bf16, rows, cols, n);
  auto q = outputs({.rows = rows,
                    .cols = cols,
                    .layout = ScaleLayout::packed_row_major,
                    .scope = GlobalScope::vector},
                   n);
  const Matrix ids(DType::f32, rows, kTopK, kGpu), weights(DType::f32, rows, kTopK, kGpu);
  Matrix staged_ids(DType::f32, rows, 2 * kTopK, kGpu),
      staged_weights(DType::f32, rows, kTopK, kGpu);
  b.add(fmt::format("MoE staging [{},{}] top-{}", rows, cols, kTopK), n, bytes, aim, peer,
        [&](std::int64_t i, Stream s) {
          stage_moe_into(
              x[i],
              {ids.data<void>(), IndexType::i32, kTopK, weights.data<float>(), kTopK, rows, kTopK},
              at(q, i),
              {static_cast<std::int64_t*>(staged_ids.data<void>()), kTopK,
               staged_weights.data<float>(), kTopK},
              {.layout = ScaleLayout::packed_row_major, .scope = GlobalScope::vector, .stream = s});
        });
}

void bench_search(Bench& b, std::int64_t rows, std::int64_t cols) {
  const std::int64_t in = rows * cols * 2, out = quantized_bytes(rows, cols);
  const std::int64_t n = copies_of(in);
  const std::string shape = fmt::format("[{},{}]", rows, cols);
  Copies x(DType::bf16, rows, cols, n);
  auto q = outputs({.rows = rows, .cols = cols}, n);
  const GlobalScale global = GlobalScale::from_amax(0.1f, Quantizer::mse);
  for (const Quantizer quantizer : {Quantizer::four_over_six, Quantizer::mse}) {
    const std::string name = "search " + std::string(quantizer_name(quantizer)) + " ";
    if (b.wanted(name))
      b.add(name + shape, n, in + out, quantizer == Quantizer::mse ? 120 : 0,
            quantizer == Quantizer::mse ? 4040 : 0, [&](std::int64_t i, Stream s) {
              quantize_into(x[i], at(q, i),
                            {.quantizer = quantizer, .global = {&global, 1}, .stream = s});
            });
  }
  if (!b.wanted("search hessian")) return;
  constexpr std::int64_t kTokens = 8192;
  Copies tokens(DType::bf16, kTokens, cols, 1);
  Matrix gram(DType::f32, cols, 16, kGpu);
  gram_into(tokens[0], gram.span());
  synchronize(kGpu);
  const auto quantize_hessian = [&](std::int64_t i, Stream s) {
    quantize_into(
        x[i], at(q, i),
        {.quantizer = Quantizer::mse, .global = {&global, 1}, .hessian = gram.view(), .stream = s});
  };
  b.add("search hessian, H given " + shape, n, in + out, 600, 9880, quantize_hessian);
  b.add("search hessian with Gram of 8192 rows " + shape, n, in + out + kTokens * cols * 2, 1000,
        42600, [&](std::int64_t i, Stream s) {
          gram_into(tokens[0], gram.span(), false, s);
          quantize_hessian(i, s);
        });
}

void run(int argc, char** argv) {
  std::string file;
  bench::NameFilter names;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--json" && i + 1 < argc)
      file = argv[++i];
    else
      names.add(argv[i]);
  }
  Bench b(std::move(names));
  b.measure_copy();
  bench_quantize(b, 8192, 7168, 42, 107, 75, 154, 45);
  bench_quantize(b, 128, 7168, 2.6, 5.6, 0, 9.3, 0);
  bench_quantize(b, 1, 7168, 1.8, 3.5, 0, 5.2, 0);
  bench_rms_norm(b, 8192, 7168, 45, 227);
  bench_rms_norm(b, 128, 7168, 0, 8.4);
  bench_rms_norm(b, 1, 7168, 3, 4.8);
  bench_mix(b, 8192, 7168);
  bench_swiglu(b, 8192, 2048, 0, 23, 116);
  bench_swiglu(b, 8192, 2048, 8, 23, 116);
  bench_swiglu(b, 1, 2048, 0, 2, 2.9);
  bench_staging(b, 8192, 7168, 45, 464);
  bench_search(b, 2560, 9728);
  bench::write_json(file, b.json());
  b.finish();
}

}  // namespace
}  // namespace nvfp4

int main(int argc, char** argv) {
  return nvfp4::bench::run_program("nvfp4_cuda_bench", [&] { nvfp4::run(argc, argv); });
}
