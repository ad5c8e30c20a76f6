// Measures a mixture-of-experts layer on one GPU against its bounds, in the same run. The bounds
// are the bytes of the used experts at the rate of a read-only stream, and the operations at the
// rate of cuBLAS BF16.
//
// usage: nvfp4_cuda_moe_bench [--model NAME|all] [--tokens T,T,...] [--experts E]
//                             [--kernels each|NAME] [--json FILE]
//
// --model: a model of gemm_shapes.h, by default DeepSeek-V3. A graph holds several calls, each with
// its own random routing. --kernels measures only the two GEMMs, with every kernel or with one.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "../bench_matrix.h"
#include "cublas.h"
#include "gemm_arguments.h"
#include "kernel_search.h"
#include "nvfp4/gemm.h"
#include "nvfp4/moe.h"
#include "program.h"
#include "stream_read.h"

namespace nvfp4 {
namespace {

const Device kGpu = Device::cuda();
constexpr double kAim = 1.4;  ///< factor of the bound

struct Arguments {
  std::string json;
  bool kernels = false;
  std::optional<bench::KernelConfig> kernel;  ///< the only kernel
  std::vector<std::int64_t> tokens = {1, 16, 128, 1024, 8192};
  std::int64_t experts = 0;  ///< 0: number of the model
  std::vector<bench::MoeShape> models = {bench::kMoeShapes[0]};
};

/// Bytes and operations per microsecond.
struct Limits {
  double read = 0, multiply = 0;
};

Limits measure_limits() {
  Limits limits;
  constexpr std::int64_t kBytes = std::int64_t{2} << 30;
  Buffer data(kBytes, kGpu), never(16, kGpu);
  limits.read = static_cast<double>(kBytes) / bench::measure(2, [&](std::int64_t, Stream s) {
                  bench::stream_read(static_cast<const std::uint8_t*>(data.data()), kBytes,
                                     static_cast<unsigned*>(never.data()),
                                     static_cast<cudaStream_t>(s.handle));
                });
  bench::Cublas cublas;
  if (!cublas.available()) {
    fmt::print("cuBLAS was not found\n");
    return limits;
  }
  constexpr std::int64_t kSize = 8192;
  const Matrix a = to_device(bench::gaussian(DType::bf16, kSize, kSize).view(), kGpu);
  Matrix out(DType::bf16, kSize, kSize, kGpu);
  // The clock falls in the first 0.1 s, so as many GEMMs are timed as the layer's calls take.
  constexpr int kReplays = 60;
  const double us = bench::measure(
      4, [&](std::int64_t, Stream s) { cublas.multiply(a.view(), a.view(), out.span(), s); },
      kReplays);
  limits.multiply = 2.0 * kSize * kSize * kSize / us;
  return limits;
}

/// A random routing with different experts for each token.
class RandomRouting {
 public:
  RandomRouting(std::int64_t tokens, std::int64_t experts, std::int64_t top_k, std::uint64_t seed)
      : ids_(DType::f32, tokens, top_k, kGpu), weights_(DType::f32, tokens, top_k, kGpu) {
    std::mt19937_64 rng(seed);
    std::vector<std::int32_t> all(static_cast<std::size_t>(experts)), ids;
    std::iota(all.begin(), all.end(), 0);
    std::set<std::int32_t> touched;
    for (std::int64_t t = 0; t < tokens; ++t)
      std::sample(all.begin(), all.end(), std::back_inserter(ids), top_k, rng);
    touched.insert(ids.begin(), ids.end());
    touched_ = static_cast<std::int64_t>(touched.size());
    std::vector<std::int32_t> ends(all.size());
    for (const std::int32_t id : ids) ++ends[static_cast<std::size_t>(id)];
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    ends_ = to_device(MatrixView(ends.data(), DType::f32, 1, experts), kGpu);
    const std::vector<float> weights(ids.size(), 1.0f / static_cast<float>(top_k));
    copy(MatrixView(ids.data(), DType::f32, tokens, top_k), ids_.span());
    copy(MatrixView(weights.data(), DType::f32, tokens, top_k), weights_.span());
    synchronize(kGpu);
  }
  std::int64_t touched() const { return touched_; }
  std::span<const std::int32_t> row_ends() const {
    return {static_cast<const std::int32_t*>(ends_.data<void>()),
            static_cast<std::size_t>(ends_.cols())};
  }
  Routing view() const {
    return {.ids = ids_.data<void>(),
            .id_type = IndexType::i32,
            .id_stride = ids_.cols(),
            .weights = weights_.data<float>(),
            .weight_stride = ids_.cols(),
            .rows = ids_.rows(),
            .top_k = ids_.cols()};
  }

 private:
  Matrix ids_, weights_, ends_;  // int32, float and int32
  std::int64_t touched_ = 0;
};

/// Returns a layer whose experts have equal values in separate memory.
Moe make_moe(const Arguments& a, const bench::MoeShape& s, Scheme scheme) {
  const auto weight = [](std::int64_t n, std::int64_t k, std::uint64_t seed) {
    return quantize(bench::gaussian(DType::bf16, n, k, seed).view(), {.quantizer = Quantizer::max});
  };
  const QuantizedMatrix gate = weight(s.intermediate, s.hidden, 1),
                        up = weight(s.intermediate, s.hidden, 2),
                        down = weight(s.hidden, s.intermediate, 3);
  ExpertWeights expert{gate.view(), up.view(), down.view()};
  expert.gate.input_scale = expert.up.input_scale = GlobalScale{1e-4f, 1e4f};
  expert.down.input_scale = GlobalScale{1e-5f, 1e5f};
  const std::vector<ExpertWeights> experts(static_cast<std::size_t>(s.experts), expert);
  return Moe(experts, {},
             {.scheme = scheme,
              .max_tokens = *std::max_element(a.tokens.begin(), a.tokens.end()),
              .device = kGpu});
}

nlohmann::json run_scheme(const Arguments& a, const bench::MoeShape& s, Scheme scheme,
                          const Limits& limits) {
  const Moe moe = make_moe(a, s, scheme);
  const char* const name = scheme == Scheme::w4a4 ? "W4A4" : "W4A16";
  const double expert_bytes =
      static_cast<double>(moe.weight_bytes()) / static_cast<double>(s.experts);
  nlohmann::json rows;
  for (const std::int64_t tokens : a.tokens) {
    const std::int64_t copies = tokens >= 1024 ? 2 : 8;
    std::vector<RandomRouting> routings;
    double touched = 0;
    for (std::int64_t i = 0; i < copies; ++i) {
      routings.emplace_back(tokens, s.experts, s.top_k, static_cast<std::uint64_t>(i));
      touched += static_cast<double>(routings.back().touched()) / static_cast<double>(copies);
    }
    const Matrix x = to_device(bench::gaussian(DType::bf16, tokens, s.hidden, 5).view(), kGpu);
    Matrix out(DType::bf16, tokens, s.hidden, kGpu);
    const double us = bench::measure(copies, [&](std::int64_t i, Stream s) {
      moe.forward_into(x.view(), routings[static_cast<std::size_t>(i)].view(), out.span(), s);
    });
    const double read = touched * expert_bytes / limits.read;
    const double multiply =
        limits.multiply == 0
            ? 0
            : 6.0 * static_cast<double>(tokens * s.top_k * s.hidden * s.intermediate) /
                  limits.multiply;
    const double bound = std::max(read, multiply);
    fmt::print(
        "{:<5} T={:<5} {:>9.1f} us  {:>6.1f} experts: reading {:>8.1f} us, multiplying {:>8.1f} us "
        " {:.2f} x  {}\n",
        name, tokens, us, touched, read, multiply, us / bound,
        us <= kAim * bound ? "reached" : "missed");
    std::fflush(stdout);
    rows.push_back({{"model", s.model},
                    {"scheme", name},
                    {"tokens", tokens},
                    {"us", us},
                    {"experts_touched", touched},
                    {"read_us", read},
                    {"multiply_us", multiply}});
  }
  return rows;
}

/// Measures one of the two GEMMs of a layer, N x K, with each kernel.
void run_kernels(const Arguments& a, const bench::MoeShape& s, std::int64_t n, std::int64_t k) {
  const QuantizedMatrix one = to_device(
      quantize(bench::gaussian(DType::bf16, n, k).view(), {.quantizer = Quantizer::max}).view(),
      kGpu);
  const PackedWeights w =
      pack_weights(std::vector<QuantizedView>(static_cast<std::size_t>(s.experts), one.view()),
                   {.groups = s.experts});
  std::vector<bench::KernelConfig> kernels = cuda::kernel_configs(cuda::kSm90Kernels);
  if (a.kernel) kernels = {*a.kernel};
  for (const std::int64_t tokens : a.tokens) {
    const std::int64_t copies = tokens >= 1024 ? 1 : 4;
    std::vector<RandomRouting> routings;
    for (std::int64_t i = 0; i < copies; ++i)
      routings.emplace_back(tokens, s.experts, s.top_k, static_cast<std::uint64_t>(i));
    const Matrix x = to_device(bench::gaussian(DType::bf16, tokens * s.top_k, k, 5).view(), kGpu);
    Matrix out(DType::bf16, tokens * s.top_k, n, kGpu);
    std::vector<bench::TimedKernel> times;
    for (const bench::KernelConfig& kernel : kernels) {
      const bool routed = kernel.m == 1;
      if ((routed && tokens > 1) || (tokens >= 128 && kernel.split_k > 1) ||
          (tokens <= 16 && kernel.m > 32) || (tokens >= 1024 && kernel.m < 16 && !a.kernel))
        continue;
      const auto product = [&](std::int64_t i, Stream stream) {
        const RandomRouting& routing = routings[static_cast<std::size_t>(i)];
        GemmDescription d{.m = x.rows(), .form = GemmForm::grouped};
        GemmArguments a{.x = x.view(), .weights = w, .out = out.span()};
        d.kernel = cuda::kernel_name(kernel);
        if (routed) {  // as in the layer: rows are those of the choices
          d.form = GemmForm::routed;
          d.top_k = s.top_k;
          a.routing = routing.view();
        } else {
          a.row_ends = routing.row_ends();
        }
        gemm(plan_gemm(w, d), a, {}, stream);
      };
      try {
        product(0, {});
      } catch (const ValueError&) {
        continue;  // the kernel does not support this K
      }
      times.emplace_back(kernel, bench::measure(copies, product, routed ? 15 : 5));
    }
    std::sort(times.begin(), times.end(), bench::is_faster);
    fmt::print("{} {}x{} T={:<5}", s.model, n, k, tokens);
    for (const auto& [kernel, us] : times) fmt::print(" {}={:.2f}", cuda::kernel_name(kernel), us);
    fmt::print("\n");
    std::fflush(stdout);
  }
}

std::vector<bench::MoeShape> models_of(std::string_view name) {
  std::vector<bench::MoeShape> models;
  for (const bench::MoeShape& s : bench::kMoeShapes)
    if (name == "all" || name == s.model) models.push_back(s);
  if (models.empty())
    throw ValueError(
        fmt::format("--model = \"{}\", must be all or a model of gemm_shapes.h", name));
  return models;
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (++i == argc) throw ValueError(fmt::format("{} needs a value", name));
    const std::string value = argv[i];
    if (name == "--kernels") {
      a.kernels = true;
      if (value != "each") a.kernel = cuda::kernel_config(value);
    } else if (name == "--json") {
      a.json = value;
    } else if (name == "--experts") {
      a.experts = bench::parse_number(name, value);
    } else if (name == "--tokens") {
      a.tokens = bench::parse_numbers(name, value);
    } else if (name == "--model") {
      a.models = models_of(value);
    } else {
      throw ValueError(fmt::format("unknown argument {}", name));
    }
  }
  for (bench::MoeShape& s : a.models)
    if (a.experts > 0) s.experts = a.experts;
  return a;
}

void run(const Arguments& arguments) {
  if (arguments.kernels) {
    for (const bench::MoeShape& s : arguments.models) {
      run_kernels(arguments, s, 2 * s.intermediate, s.hidden);
      run_kernels(arguments, s, s.hidden, s.intermediate);
    }
    return;
  }
  const Limits limits = measure_limits();
  fmt::print("reading {:.2f} TB/s, cuBLAS BF16 {:.0f} TFLOP/s\n", limits.read * 1e-6,
             limits.multiply * 1e-6);
  nlohmann::json j = bench::describe_gpu();
  j["read_bytes_per_us"] = limits.read;
  j["cublas_flop_per_us"] = limits.multiply;
  for (const bench::MoeShape& s : arguments.models) {
    fmt::print("{}: {} experts of {}x{}, top {}\n", s.model, s.experts, s.hidden, s.intermediate,
               s.top_k);
    for (const Scheme scheme : {Scheme::w4a16, Scheme::w4a4})
      for (const auto& row : run_scheme(arguments, s, scheme, limits)) j["rows"].push_back(row);
  }
  bench::write_json(arguments.json, j);
}

}  // namespace
}  // namespace nvfp4

int main(int argc, char** argv) {
  return nvfp4::bench::run_program("nvfp4_cuda_moe_bench",
                                   [&] { nvfp4::run(nvfp4::parse(argc, argv)); });
}
