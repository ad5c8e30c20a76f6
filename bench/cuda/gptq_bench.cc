// Measures quantization with a given Gram matrix H on the GPU against the time of its FLOP at the
// FP32 peak.
// usage: nvfp4_cuda_gptq_bench [--json FILE] [--sweeps N] [--factors] [NAME...]    only layers
// whose name contains a NAME; --factors: only the time of factors
//
// The second measurement is the time to factor each H. Eigen runs on one CPU thread and gives the
// bytes of a CPU. cuSOLVER runs on the GPU, if it is installed; its time includes copies.
//
// The time includes both searches for block scales, GPTQ, descent and the choice. The inputs are
// those of an AR(1) process, whose inverse factor is known. The first rows are compared with the
// CPU's.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "../bench_matrix.h"
#include "backends/backend.h"
#include "backends/device_backend.h"
#include "core/device_memory.h"
#include "gemm_arguments.h"
#include "name_filter.h"
#include "nvfp4/error.h"
#include "ops/device_gram.h"
#include "ops/factor_gram.h"
#include "program.h"
#include "quantizers/gptq.h"

namespace nvfp4 {
namespace {

const Device kGpu = Device::cuda();
constexpr int kReplays = 3;
constexpr std::int64_t kChecked = 64;  ///< rows
constexpr double kCorrelation = 0.7;   ///< correlation of neighboring channels
constexpr double kAimMs = 60;          ///< target for the expert
constexpr double kAimModelSeconds = 120;

struct Layer {
  const char* name;
  std::int64_t rows, depth;
  int per_model;  ///< number of weights of this shape in a Llama of 7 B
};
constexpr Layer kLayers[] = {{"expert", 7168, 2048, 0},
                             {"llama-7b q k v o", 4096, 4096, 4 * 32},
                             {"llama-7b gate up", 11008, 4096, 2 * 32},
                             {"llama-7b down", 4096, 11008, 32}};

struct Arguments {
  std::string json;
  int sweeps = 4;
  bool only_factors = false;
  bench::NameFilter names;
};

/// Returns the factors of H_ij = r^|i - j|. H⁻¹ = UᵀU with U_ii = 1 / √(1 - r²), U_i,i+1 = -r U_ii,
/// and the last diagonal element is 1.
GramFactor ar1_factor(std::int64_t depth) {
  const double diagonal = 1 / std::sqrt(1 - kCorrelation * kCorrelation);
  GramFactor f;
  f.depth = depth;
  f.order.resize(static_cast<std::size_t>(depth));
  std::iota(f.order.begin(), f.order.end(), 0);
  f.weights.assign(f.order.size(), 1.0f);
  const auto size = static_cast<std::size_t>(depth * depth);
  f.gram.resize(size);
  f.upper.resize(size);
  std::vector<float> powers(f.order.size());
  for (std::size_t i = 0; i < powers.size(); ++i)
    powers[i] = static_cast<float>(std::pow(kCorrelation, static_cast<double>(i)));
  const auto fill_upper = [&](float* upper, std::int64_t n, std::vector<float>& reciprocal) {
    for (std::int64_t i = 0; i < n; ++i) {
      const bool last = i + 1 == n;
      upper[i * n + i] = static_cast<float>(last ? 1 : diagonal);
      if (!last) upper[i * n + i + 1] = static_cast<float>(-kCorrelation * diagonal);
      reciprocal.push_back(static_cast<float>(last ? 1 : 1 / diagonal));
    }
  };
  for (std::int64_t i = 0; i < depth; ++i)
    for (std::int64_t j = 0; j < depth; ++j)
      f.gram[static_cast<std::size_t>(i * depth + j)] =
          powers[static_cast<std::size_t>(std::abs(i - j))];
  fill_upper(f.upper.data(), depth, f.reciprocal);
  f.block_inverse.resize(static_cast<std::size_t>(depth * kBlock));
  f.block_upper.resize(static_cast<std::size_t>(depth * kBlock));
  for (std::int64_t b = 0; b < depth / kBlock; ++b) {
    float* const upper = f.block_upper.data() + b * kBlock * kBlock;
    float* const inverse = f.block_inverse.data() + b * kBlock * kBlock;
    fill_upper(upper, kBlock, f.block_reciprocal);
    for (int i = 0; i < kBlock; ++i)
      for (int j = 0; j < kBlock; ++j)
        for (int p = 0; p <= std::min(i, j); ++p)
          inverse[i * kBlock + j] += upper[p * kBlock + i] * upper[p * kBlock + j];
  }
  return f;
}

/// A weight on the GPU with the memory for its quantization.
class Problem {
 public:
  Problem(const Layer& layer, int sweeps)
      : rows_(layer.rows),
        sweeps_(sweeps),
        factor_(ar1_factor(layer.depth)),
        gram_(factor_, kGpu, {}),
        x_here_(bench::gaussian(DType::f32, layer.rows, layer.depth)),
        x_(to_device(x_here_.view(), kGpu)),
        weights_(to_device(MatrixView(factor_.weights.data(), DType::f32, 1, layer.depth), kGpu)),
        mse_({.rows = layer.rows, .cols = layer.depth}, kGpu),
        best_({.rows = layer.rows, .cols = layer.depth}, kGpu),
        chosen_(layer.rows, kGpu),
        errors_(layer.rows * kGptqCandidates * 8, kGpu),
        workspace_(device_backend(kGpu).gptq_workspace(layer.rows, layer.depth), kGpu),
        global_(GlobalScale::from_amax(amax(x_here_.view()), Quantizer::mse)) {}

  void run(Stream stream) {
    QuantizeOptions options{.quantizer = Quantizer::mse, .global = {&global_, 1}, .stream = stream};
    quantize_into(x_.view(), mse_.span(), options);
    options.weights = {weights_.data<float>(), static_cast<std::size_t>(factor_.depth)};
    quantize_into(x_.view(), best_.span(), options);
    device_backend(kGpu).gptq({.gram = gram_.view(),
                               .x = x_.view(),
                               .divisor = global_.divisor,
                               .sweeps = sweeps_,
                               .mse_codes = mse_.codes(),
                               .mse_scales = mse_.scales(),
                               .codes = best_.span().codes,
                               .scales = best_.span().scales,
                               .chosen = static_cast<std::uint8_t*>(chosen_.data()),
                               .errors = static_cast<double*>(errors_.data()),
                               .workspace = workspace_.data(),
                               .stream = stream});
  }

  /// Reports whether the first rows equal those of the CPU, after run().
  bool is_as_on_the_cpu() const {
    const std::int64_t rows = std::min(rows_, kChecked), depth = factor_.depth;
    const MatrixView x(x_here_.view().data, DType::f32, rows, depth);
    QuantizeOptions options{.quantizer = Quantizer::mse, .global = {&global_, 1}};
    const QuantizedMatrix mse = quantize(x, options);
    options.weights = factor_.weights;
    QuantizedMatrix best = quantize(x, options);
    std::vector<std::uint8_t> chosen(static_cast<std::size_t>(rows));
    std::vector<double> errors(chosen.size() * kGptqCandidates);
    find_backend("").gptq({.gram = &factor_,
                           .x = static_cast<const float*>(x.data),
                           .rows = rows,
                           .divisor = global_.divisor,
                           .sweeps = sweeps_,
                           .mse_codes = mse.codes(),
                           .mse_scales = mse.scales(),
                           .codes = best.span().codes,
                           .scales = best.span().scales,
                           .chosen = chosen.data(),
                           .errors = errors.data()},
                          0, rows);
    const QuantizedMatrix got = to_device(best_.view(), {});
    return std::equal(best.codes(), best.codes() + best.shape().code_bytes(), got.codes()) &&
           std::equal(best.scales(), best.scales() + rows * depth / kBlock, got.scales());
  }

 private:
  const std::int64_t rows_;
  const int sweeps_;
  const GramFactor factor_;
  const DeviceGram gram_;
  const Matrix x_here_, x_, weights_;
  QuantizedMatrix mse_, best_;
  const Buffer chosen_, errors_, workspace_;
  const GlobalScale global_;
};

/// Returns the triangle of H_ij = r^|i - j| in the order of a calibration file.
std::vector<double> ar1_triangle(std::int64_t depth) {
  std::vector<double> h;
  h.reserve(static_cast<std::size_t>(depth * (depth + 1) / 2));
  for (std::int64_t i = 0; i < depth; ++i)
    for (std::int64_t j = i; j < depth; ++j)
      h.push_back(std::pow(kCorrelation, static_cast<double>(j - i)));
  return h;
}

/// Returns the seconds of the second of two calls of factor_gram(). The first one loads the
/// library.
double factor_seconds(const std::vector<double>& triangle, std::int64_t depth,
                      const InvertLower& library) {
  double seconds = 0;
  for (int run = 0; run < (library ? 2 : 1); ++run) {
    std::vector<double> copy = triangle;
    const auto start = std::chrono::steady_clock::now();
    factor_gram(depth, std::move(copy), 0.05, "", library);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return seconds;
}

/// Measures the factors for each depth of the layers once.
void run_factors(Arguments& a, nlohmann::json& j) {
  const DeviceSolver* const solver = device_backend(kGpu).solver();
  const std::string reason = solver->why_unusable();
  const InvertLower library = [&](double* h, std::int64_t n) {
    return solver->invert_lower(h, n, kGpu);
  };
  fmt::print("\n{:<18} {:>14} {:>10} {:>12}\n", "factors of H", "K", "Eigen s", "cuSOLVER s");
  std::set<std::int64_t> depths;
  for (const Layer& layer : kLayers)
    if (a.names.wanted(layer.name)) depths.insert(layer.depth);
  for (const std::int64_t depth : depths) {
    const std::vector<double> triangle = ar1_triangle(depth);
    const double eigen = factor_seconds(triangle, depth, {});
    const double there = reason.empty() ? factor_seconds(triangle, depth, library) : 0;
    fmt::print("{:<18} {:>14} {:>10.3f} {:>12}\n", "", depth, eigen,
               there > 0 ? fmt::format("{:.3f}", there) : "-");
    std::fflush(stdout);
    j["factors"].push_back({{"depth", depth}, {"eigen_s", eigen}, {"cusolver_s", there}});
  }
  fmt::print("{}\n", reason.empty() ? "by " + solver->name() : reason);
}

/// Returns the peak in FLOP per second.
double peak() {
  int clock_khz = 0, units = 0;
  bench::check(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, 0));
  bench::check(cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, 0));
  return 1e3 * clock_khz * units * 128 * 2;
}

void run(Arguments a) {
  nlohmann::json j = {{"host", bench::describe_gpu()}, {"sweeps", a.sweeps}};
  if (a.only_factors) {
    run_factors(a, j);
    bench::write_json(a.json, j);
    return a.names.require_found();
  }
  fmt::print("{:<18} {:>14} {:>10} {:>10} {:>7}\n", "", "shape", "ms", "floor ms", "ratio");
  double model_ms = 0;
  bool whole_model = true;
  int wrong = 0;
  for (const Layer& layer : kLayers) {
    const bool wanted = a.names.wanted(layer.name);
    whole_model &= wanted || layer.per_model == 0;
    if (!wanted) continue;
    Problem problem(layer, a.sweeps);
    const double ms = 1e-3 * bench::measure(
                                 1, [&](std::int64_t, Stream s) { problem.run(s); }, kReplays);
    // Gradients: three of candidates, half of one for GPTQ, one for each sweep.
    const double flop = 2.0 * static_cast<double>(layer.rows) *
                        std::pow(static_cast<double>(layer.depth), 2) * (3.5 + a.sweeps);
    const double floor_ms = 1e3 * flop / peak();
    const std::string shape = fmt::format("{} x {}", layer.rows, layer.depth);
    const bool same = problem.is_as_on_the_cpu();
    wrong += !same;
    fmt::print("{:<18} {:>14} {:>10.2f} {:>10.2f} {:>7.2f}  {}", layer.name, shape, ms, floor_ms,
               ms / floor_ms, same ? "as on the CPU" : "NOT AS ON THE CPU");
    if (layer.per_model == 0)
      fmt::print("  aim {:.0f} ms: {}", kAimMs, ms <= kAimMs ? "reached" : "missed");
    fmt::print("\n");
    std::fflush(stdout);
    model_ms += ms * layer.per_model;
    j["rows"].push_back({{"name", layer.name}, {"ms", ms}, {"floor_ms", floor_ms}});
  }
  if (whole_model) {
    fmt::print("llama-7b, 32 layers: {:.1f} s, aim {:.0f} s: {}\n", 1e-3 * model_ms,
               kAimModelSeconds, model_ms <= 1e3 * kAimModelSeconds ? "reached" : "missed");
    j["llama_7b_s"] = 1e-3 * model_ms;
  }
  run_factors(a, j);
  bench::write_json(a.json, j);
  a.names.require_found();
  if (wrong > 0)
    throw Error(fmt::format("{} of the layers have other bytes than on the CPU", wrong));
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json" && i + 1 < argc)
      a.json = argv[++i];
    else if (word == "--sweeps" && i + 1 < argc)
      a.sweeps = static_cast<int>(bench::parse_number(word, argv[++i]));
    else if (word == "--factors")
      a.only_factors = true;
    else
      a.names.add(word);
  }
  return a;
}

}  // namespace
}  // namespace nvfp4

int main(int argc, char** argv) {
  return nvfp4::bench::run_program("nvfp4_cuda_gptq_bench",
                                   [&] { nvfp4::run(nvfp4::parse(argc, argv)); });
}
