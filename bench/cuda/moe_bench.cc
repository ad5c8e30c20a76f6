// The mixture-of-experts layer of DeepSeek-V3 on one GPU beside what bounds it: the bytes of the
// experts that are touched at the rate of a read-only stream, and the operations at the rate of
// cuBLAS BF16, both measured in the same run.
// usage: nvfp4_cuda_moe_bench [--json FILE] [--tiles all|T,R,S] [--tokens T,T,...] [--experts E]
//
// A graph holds several calls, each with a routing of its own: random, top 8. --tiles times the two
// products alone with every tile there is, or with one.
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
#include "backends/cuda/gemm/problem.h"
#include "cublas.h"
#include "nvfp4/moe.h"
#include "nvfp4/tensor_core_gemm.h"
#include "program.h"
#include "stream_read.h"

namespace nvfp4 {
namespace {

const Device kGpu = Device::cuda();
constexpr std::int64_t kHidden = 7168, kIntermediate = 2048, kTopK = 8;
constexpr double kAim = 1.3;  ///< times the bound

struct Arguments {
  std::string json;
  bool tiles = false;
  std::optional<GemmTile> tile;
  std::vector<std::int64_t> tokens = {1, 16, 128, 1024, 8192};
  std::int64_t experts = 256;
};

/// Bytes and operations in a microsecond.
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
  // The clock falls in the first tenths of a second: as many products as the layer's calls take.
  constexpr int kReplays = 60;
  const double us = bench::measure(
      4, [&](std::int64_t, Stream s) { cublas.multiply(a.view(), a.view(), out.span(), s); },
      kReplays);
  limits.multiply = 2.0 * kSize * kSize * kSize / us;
  return limits;
}

/// Random experts for each token, all different.
class RandomRouting {
 public:
  RandomRouting(std::int64_t tokens, std::int64_t experts, std::uint64_t seed)
      : ids_(DType::f32, tokens, kTopK, kGpu), weights_(DType::f32, tokens, kTopK, kGpu) {
    std::mt19937_64 rng(seed);
    std::vector<std::int32_t> all(static_cast<std::size_t>(experts)), ids;
    std::iota(all.begin(), all.end(), 0);
    std::set<std::int32_t> touched;
    for (std::int64_t t = 0; t < tokens; ++t)
      std::sample(all.begin(), all.end(), std::back_inserter(ids), kTopK, rng);
    touched.insert(ids.begin(), ids.end());
    touched_ = static_cast<std::int64_t>(touched.size());
    std::vector<std::int32_t> ends(all.size());
    for (const std::int32_t id : ids) ++ends[static_cast<std::size_t>(id)];
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    ends_ = to_device(MatrixView(ends.data(), DType::f32, 1, experts), kGpu);
    const std::vector<float> weights(ids.size(), 1.0f / kTopK);
    copy(MatrixView(ids.data(), DType::f32, tokens, kTopK), ids_.span());
    copy(MatrixView(weights.data(), DType::f32, tokens, kTopK), weights_.span());
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
            .id_stride = kTopK,
            .weights = weights_.data<float>(),
            .weight_stride = kTopK,
            .rows = ids_.rows(),
            .top_k = kTopK};
  }

 private:
  Matrix ids_, weights_, ends_;  // of int32, float and int32
  std::int64_t touched_ = 0;
};

/// All experts have the values of one, in memory of their own.
Moe make_moe(const Arguments& a, Scheme scheme) {
  const auto weight = [](std::int64_t n, std::int64_t k, std::uint64_t seed) {
    return quantize(bench::gaussian(DType::bf16, n, k, seed).view(), {.quantizer = Quantizer::max});
  };
  const QuantizedMatrix gate = weight(kIntermediate, kHidden, 1),
                        up = weight(kIntermediate, kHidden, 2),
                        down = weight(kHidden, kIntermediate, 3);
  ExpertWeights expert{gate.view(), up.view(), down.view()};
  expert.gate.input_scale = expert.up.input_scale = GlobalScale{1e-4f, 1e4f};
  expert.down.input_scale = GlobalScale{1e-5f, 1e5f};
  const std::vector<ExpertWeights> experts(static_cast<std::size_t>(a.experts), expert);
  return Moe(experts, {},
             {.scheme = scheme,
              .max_tokens = *std::max_element(a.tokens.begin(), a.tokens.end()),
              .device = kGpu});
}

nlohmann::json run_scheme(const Arguments& a, Scheme scheme, const Limits& limits) {
  const Moe moe = make_moe(a, scheme);
  const char* const name = scheme == Scheme::nvfp4 ? "W4A4" : "W4A16";
  const double expert_bytes =
      static_cast<double>(moe.weight_bytes()) / static_cast<double>(a.experts);
  nlohmann::json rows;
  for (const std::int64_t tokens : a.tokens) {
    const std::int64_t copies = tokens >= 1024 ? 2 : 8;
    std::vector<RandomRouting> routings;
    double touched = 0;
    for (std::int64_t i = 0; i < copies; ++i) {
      routings.emplace_back(tokens, a.experts, static_cast<std::uint64_t>(i));
      touched += static_cast<double>(routings.back().touched()) / static_cast<double>(copies);
    }
    const Matrix x = to_device(bench::gaussian(DType::bf16, tokens, kHidden, 5).view(), kGpu);
    Matrix out(DType::bf16, tokens, kHidden, kGpu);
    const double us = bench::measure(copies, [&](std::int64_t i, Stream s) {
      moe.forward_into(x.view(), routings[static_cast<std::size_t>(i)].view(), out.span(), s);
    });
    const double read = touched * expert_bytes / limits.read;
    const double multiply = limits.multiply == 0 ? 0
                                                 : 6.0 * static_cast<double>(tokens * kTopK) *
                                                       kHidden * kIntermediate / limits.multiply;
    const double bound = std::max(read, multiply);
    fmt::print(
        "{:<5} T={:<5} {:>9.1f} us  {:>6.1f} experts: reading {:>8.1f} us, multiplying {:>8.1f} us "
        " {:.2f} x  {}\n",
        name, tokens, us, touched, read, multiply, us / bound,
        us <= kAim * bound ? "reached" : "missed");
    std::fflush(stdout);
    rows.push_back({{"scheme", name},
                    {"tokens", tokens},
                    {"us", us},
                    {"experts_touched", touched},
                    {"read_us", read},
                    {"multiply_us", multiply}});
  }
  return rows;
}

void run_tiles(const Arguments& a, std::int64_t n, std::int64_t k) {
  const QuantizedMatrix one = to_device(
      quantize(bench::gaussian(DType::bf16, n, k).view(), {.quantizer = Quantizer::max}).view(),
      kGpu);
  const FragmentWeights w =
      pack_fragments(std::vector<QuantizedView>(static_cast<std::size_t>(a.experts), one.view()));
  for (const std::int64_t tokens : a.tokens) {
    const std::int64_t copies = tokens >= 1024 ? 1 : 4;
    std::vector<RandomRouting> routings;
    for (std::int64_t i = 0; i < copies; ++i)
      routings.emplace_back(tokens, a.experts, static_cast<std::uint64_t>(i));
    const Matrix x = to_device(bench::gaussian(DType::bf16, tokens * kTopK, k, 5).view(), kGpu);
    Matrix out(DType::bf16, tokens * kTopK, n, kGpu);
    std::vector<std::pair<double, GemmTile>> times;
    if (tokens == 1) {
      // As the layer multiplies: the rows are those of the choices.
      const auto time = [&](const GemmTile& tile) {
        return bench::measure(copies, [&](std::int64_t i, Stream s) {
          routed_gemm_into(x.view(), w, routings[static_cast<std::size_t>(i)].view(), out.span(),
                           {.tile = tile, .stream = s});
        });
      };
      for (const int rows : cuda::kRoutedRows) {
        const GemmTile tile{1, rows, 1};
        times.emplace_back(time(tile), tile);
      }
    }
    for (const int t : {0, 8, 16, 32, 48, 64, 96, 128, 144, 160, 192, 256})
      for (const int rows : {64, 128, 192})
        for (const int splits : {1, 2, 4}) {
          if ((t == 0 && (rows != 64 || splits > 1)) || (tokens >= 128 && splits > 1) ||
              (tokens <= 16 && t > 32) || (tokens >= 1024 && t < 16))
            continue;
          const GemmTile tile{t, t == 0 ? 0 : rows, splits};
          if (a.tile && *a.tile != tile) continue;
          const auto product = [&](std::int64_t i, Stream s) {
            grouped_gemm_into(x.view(), w, {}, routings[static_cast<std::size_t>(i)].row_ends(),
                              out.span(), {.tile = tile, .stream = s});
          };
          try {
            product(0, {});
          } catch (const ValueError&) {
            continue;  // there is no such tile
          }
          times.emplace_back(bench::measure(copies, product, 5), tile);
        }
    std::sort(times.begin(), times.end(),
              [](const auto& l, const auto& r) { return l.first < r.first; });
    fmt::print("{}x{} T={:<5}", n, k, tokens);
    for (const auto& [us, t] : times)
      fmt::print(" [{},{},{}]={:.2f}", t.tokens, t.rows, t.splits, us);
    fmt::print("\n");
    std::fflush(stdout);
  }
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const std::string value = ++i < argc ? argv[i] : "";
    if (name == "--tiles") {
      a.tiles = true;
      GemmTile t;
      if (std::sscanf(value.c_str(), "%d,%d,%d", &t.tokens, &t.rows, &t.splits) == 3) a.tile = t;
      continue;
    }
    if (name == "--json") {
      a.json = value;
    } else if (name == "--experts") {
      a.experts = std::stoll(value);
    } else if (name == "--tokens") {
      a.tokens = bench::parse_numbers(value);
    } else {
      throw ValueError(fmt::format("unknown argument {}", name));
    }
  }
  return a;
}

void run(const Arguments& arguments) {
  if (arguments.tiles) {
    run_tiles(arguments, 2 * kIntermediate, kHidden);
    run_tiles(arguments, kHidden, kIntermediate);
    return;
  }
  const Limits limits = measure_limits();
  fmt::print("{} experts of {}x{}, reading {:.2f} TB/s, cuBLAS BF16 {:.0f} TFLOP/s\n",
             arguments.experts, kHidden, kIntermediate, limits.read * 1e-6, limits.multiply * 1e-6);
  nlohmann::json j = bench::describe_gpu();
  j["experts"] = arguments.experts;
  j["read_bytes_per_us"] = limits.read;
  j["cublas_flop_per_us"] = limits.multiply;
  for (const Scheme scheme : {Scheme::nvfp4a16, Scheme::nvfp4})
    for (const auto& row : run_scheme(arguments, scheme, limits)) j["rows"].push_back(row);
  bench::write_json(arguments.json, j);
}

}  // namespace
}  // namespace nvfp4

int main(int argc, char** argv) {
  return nvfp4::bench::run_program("nvfp4_cuda_moe_bench",
                                   [&] { nvfp4::run(nvfp4::parse(argc, argv)); });
}
