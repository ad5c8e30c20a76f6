// Runs one mixture-of-experts layer of a DeepSeek-V3-shaped model, from checkpoint to output. It
// makes a BF16 checkpoint, quantizes it and loads the layer by its name. Tokens go through the
// layer in W4A16 and W4A4. The results are compared with the BF16 layer, computed in FP32 from the
// original weights.
//
//     example_moe_layer [--scale S] [--tokens M] [--folder DIR] [--device cpu|cuda|cuda:N|auto]
//
// With a GPU (sm_90; auto selects one if there is one) the same layer also runs there, and the two
// results are compared.
//
// With --folder the checkpoints are kept in DIR/bf16 and DIR/nvfp4, and reused. These commands
// write the same:
//     nvfp4 sample DIR/bf16 --arch deepseek-v3 --layers 1 --scale S
//     nvfp4 quantize DIR/bf16 DIR/nvfp4
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/load_layers.h"
#include "nvfp4/runtime.h"

namespace {

namespace fs = std::filesystem;

const std::string kLayer = "model.layers.0.mlp";

struct Arguments {
  double scale = 0.125;
  std::int64_t tokens = 16;
  fs::path folder;  // empty: a temporary folder
  nvfp4::Device device;
};

nvfp4::Device device_of(const std::string& name) {
  const nvfp4::Device device = nvfp4::device_from_name(name);
  if (name != "auto") return device;
  for (const nvfp4::DeviceInfo& gpu : nvfp4::cuda_devices())
    if (gpu.device == device && gpu.architecture == "sm_90") return device;
  return {};
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--scale")
      a.scale = std::atof(argv[i + 1]);
    else if (name == "--tokens")
      a.tokens = std::atoll(argv[i + 1]);
    else if (name == "--folder")
      a.folder = argv[i + 1];
    else if (name == "--device")
      a.device = device_of(argv[i + 1]);
    else
      throw std::runtime_error("unknown argument " + std::string(name));
  }
  if (argc % 2 == 0) throw std::runtime_error("every argument needs a value");
  return a;
}

struct TemporaryFolder {
  std::string path = (fs::temp_directory_path() / "nvfp4_moe_XXXXXX").string();

  TemporaryFolder() {
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("cannot make a folder " + path);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The router of DeepSeek-V3: the experts of a token and their weights. Scores are sigmoids, and
/// the bias affects only the choice. 4 of 8 groups of experts are chosen. The weights sum up
/// to 2.5.
struct Router {
  static constexpr std::int64_t kTopK = 8, kGroups = 8, kTopGroups = 4;
  static constexpr float kRoutedScale = 2.5f;
  nvfp4::Matrix weight, bias;

  void choose(const nvfp4::MatrixView& x, std::int64_t token, std::int64_t* ids,
              float* weights) const {
    const std::int64_t experts = weight.rows(), size = experts / kGroups;
    std::vector<float> scores, biased;
    for (std::int64_t e = 0; e < experts; ++e) {
      float sum = 0;
      for (std::int64_t k = 0; k < x.cols; ++k) sum += x.at(token, k) * weight.view().at(e, k);
      scores.push_back(1 / (1 + std::exp(-sum)));
      biased.push_back(scores.back() + bias.view().at(0, e));
    }
    const auto best = [](std::vector<float> list, std::int64_t n) {
      std::vector<std::int64_t> order(list.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return list[static_cast<std::size_t>(a)] > list[static_cast<std::size_t>(b)];
      });
      order.resize(static_cast<std::size_t>(n));
      return order;
    };
    std::vector<float> of_group;  // sum of the two best scores of each group
    for (std::int64_t g = 0; g < kGroups; ++g) {
      const std::vector<float> part(biased.begin() + g * size, biased.begin() + (g + 1) * size);
      float sum = 0;
      for (const std::int64_t e : best(part, std::min<std::int64_t>(2, size)))
        sum += part[static_cast<std::size_t>(e)];
      of_group.push_back(sum);
    }
    std::vector<float> allowed(biased.size(), -INFINITY);
    for (const std::int64_t g : best(of_group, kTopGroups))
      std::copy_n(biased.begin() + g * size, size, allowed.begin() + g * size);
    float sum = 0;
    const std::vector<std::int64_t> chosen = best(allowed, kTopK);
    for (const std::int64_t e : chosen) sum += scores[static_cast<std::size_t>(e)];
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      ids[k] = chosen[k];
      weights[k] = kRoutedScale * scores[static_cast<std::size_t>(chosen[k])] / sum;
    }
  }
};

/// Returns y [N] = W [N, K] · x [K], in eight FP32 sums.
std::vector<float> multiply(const nvfp4::Matrix& w, const float* x) {
  std::vector<float> y;
  for (std::int64_t n = 0; n < w.rows(); ++n) {
    const float* row = w.data<float>() + n * w.cols();
    float sums[8] = {};
    for (std::int64_t k = 0; k < w.cols(); k += 8)
      for (int j = 0; j < 8; ++j) sums[j] += row[k + j] * x[k + j];
    y.push_back(std::accumulate(sums, sums + 8, 0.0f));
  }
  return y;
}

/// Computes the BF16 layer in FP32, one expert after the other. Only one expert is in memory.
nvfp4::Matrix original_layer(const nvfp4::Checkpoint& bf16, const nvfp4::MatrixView& x,
                             const std::vector<std::int64_t>& ids,
                             const std::vector<float>& weights) {
  nvfp4::Matrix y(nvfp4::DType::f32, x.rows, x.cols);
  const nvfp4::Matrix router = bf16.read(kLayer + ".gate.weight");
  for (std::int64_t e = -1; e < router.rows(); ++e) {
    if (e >= 0 && std::find(ids.begin(), ids.end(), e) == ids.end()) continue;
    const std::string name =
        kLayer + (e < 0 ? ".shared_experts." : ".experts." + std::to_string(e) + ".");
    const nvfp4::Matrix gate = bf16.read(name + "gate_proj.weight"),
                        up = bf16.read(name + "up_proj.weight"),
                        down = bf16.read(name + "down_proj.weight");
    for (std::int64_t t = 0; t < x.rows; ++t) {
      float weight = e < 0 ? 1.0f : 0.0f;
      for (std::int64_t k = t * Router::kTopK; k < (t + 1) * Router::kTopK; ++k)
        if (ids[static_cast<std::size_t>(k)] == e) weight += weights[static_cast<std::size_t>(k)];
      if (weight == 0) continue;
      std::vector<float> row;
      for (std::int64_t k = 0; k < x.cols; ++k) row.push_back(x.at(t, k));
      const std::vector<float> g = multiply(gate, row.data()), u = multiply(up, row.data());
      std::vector<float> h;
      for (std::size_t i = 0; i < g.size(); ++i) h.push_back(g[i] / (1 + std::exp(-g[i])) * u[i]);
      const std::vector<float> out = multiply(down, h.data());
      for (std::size_t i = 0; i < out.size(); ++i)
        y.data<float>()[t * x.cols + static_cast<std::int64_t>(i)] += weight * out[i];
    }
  }
  return y;
}

double relative_error(const nvfp4::MatrixView& got, const nvfp4::MatrixView& want) {
  double error = 0, norm = 0;
  for (std::int64_t r = 0; r < want.rows; ++r)
    for (std::int64_t c = 0; c < want.cols; ++c) {
      const double a = static_cast<double>(got.at(r, c)), b = static_cast<double>(want.at(r, c));
      error += (a - b) * (a - b);
      norm += b * b;
    }
  return std::sqrt(error / norm);
}

/// Returns the layer's output for x, on the layer's device. `seconds` is the best of five runs.
nvfp4::Matrix run_layer(const nvfp4::Moe& moe, const nvfp4::MatrixView& x, nvfp4::Routing routing,
                        double& seconds) {
  const nvfp4::Device device = moe.device();
  const auto placed = [&](const void* data, std::int64_t words) {  // values of 4 bytes
    return to_device(nvfp4::MatrixView(data, nvfp4::DType::f32, routing.rows, words), device);
  };
  const nvfp4::Matrix there = to_device(x, device), ids = placed(routing.ids, 2 * routing.top_k),
                      weights = placed(routing.weights, routing.top_k);
  routing.ids = ids.data<float>();
  routing.weights = weights.data<float>();
  nvfp4::Matrix y(nvfp4::DType::bf16, x.rows, moe.hidden(), device);
  seconds = INFINITY;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    moe.forward_into(there.view(), routing, y.span());
    synchronize(device);
    seconds = std::min(seconds, seconds_since(start));
  }
  return to_device(y.view(), {});
}

int run(const Arguments& a, const fs::path& folder) {
  if (!fs::exists(folder / "nvfp4" / "config.json")) {
    nvfp4::SampleOptions sample;
    sample.output = folder / "bf16";
    sample.arch = "deepseek-v3";
    sample.layers = 1;
    sample.scale = a.scale;
    sample.overwrite = true;
    nvfp4::sample_checkpoint(sample);
    nvfp4::QuantizeCheckpointOptions quantize;
    quantize.input = folder / "bf16";
    quantize.output = folder / "nvfp4";
    quantize.overwrite = true;
    const nvfp4::QuantizeReport report = nvfp4::quantize_checkpoint(quantize);
    std::printf("sampled and quantized: %.2f GB of BF16, %.2f GB of NVFP4\n",
                static_cast<double>(report.bytes_before) * 1e-9,
                static_cast<double>(report.bytes_after) * 1e-9);
  }
  const nvfp4::Checkpoint bf16(folder / "bf16"), nvfp4_folder(folder / "nvfp4");

  // Tokens have the values of an RMSNorm's output.
  const Router router{bf16.read(kLayer + ".gate.weight"),
                      bf16.read(kLayer + ".gate.e_score_correction_bias")};
  nvfp4::Matrix x(nvfp4::DType::bf16, a.tokens, router.weight.cols());
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < x.rows() * x.cols(); ++i)
    x.data<nvfp4::BF16>()[i] = nvfp4::BF16::from_float(normal(random));
  std::vector<std::int64_t> ids(static_cast<std::size_t>(a.tokens * Router::kTopK));
  std::vector<float> weights(ids.size());
  for (std::int64_t t = 0; t < a.tokens; ++t)
    router.choose(x.view(), t, ids.data() + t * Router::kTopK, weights.data() + t * Router::kTopK);
  const nvfp4::Routing routing{.ids = ids.data(),
                               .id_type = nvfp4::IndexType::i64,
                               .id_stride = Router::kTopK,
                               .weights = weights.data(),
                               .weight_stride = Router::kTopK,
                               .rows = a.tokens,
                               .top_k = Router::kTopK};
  const nvfp4::Matrix want = original_layer(bf16, x.view(), ids, weights);

  bool good = true;
  for (const nvfp4::Scheme scheme : {nvfp4::Scheme::w4a16, nvfp4::Scheme::w4a4}) {
    const bool w4a4 = scheme == nvfp4::Scheme::w4a4;
    // The sample was quantized without measured activations, so its input scales are meaningless.
    nvfp4::MoeOptions options{.scheme = scheme,
                              .activation = nvfp4::ActivationScale::measured(),
                              .down_activation = nvfp4::ActivationScale::measured(),
                              .max_tokens = a.tokens,
                              .max_top_k = Router::kTopK};
    auto start = std::chrono::steady_clock::now();
    const nvfp4::Moe moe = nvfp4::load_moe(nvfp4_folder, kLayer, options);
    const double load = seconds_since(start);
    if (!w4a4)
      std::printf("%lld experts and %lld shared, hidden %lld, intermediate %lld, %.1f MB packed\n",
                  static_cast<long long>(moe.experts()),
                  static_cast<long long>(moe.shared_experts()),
                  static_cast<long long>(moe.hidden()), static_cast<long long>(moe.intermediate()),
                  static_cast<double>(moe.weight_bytes()) * 1e-6);
    double best = 0;
    const nvfp4::Matrix y = run_layer(moe, x.view(), routing, best);
    const double error = relative_error(y.view(), want.view());
    std::printf("%s: relative error %.4f; loaded in %.2f s; %lld tokens in %.3f ms, %d threads\n",
                w4a4 ? "W4A4 " : "W4A16", error, load, static_cast<long long>(a.tokens), best * 1e3,
                nvfp4::threads());
    good &= error < (w4a4 ? 0.25 : 0.18);
    if (a.device.type == nvfp4::DeviceType::cpu) continue;
    options.device = a.device;
    start = std::chrono::steady_clock::now();
    const nvfp4::Moe there = nvfp4::load_moe(nvfp4_folder, kLayer, options);
    const double load_there = seconds_since(start);
    const nvfp4::Matrix y_there = run_layer(there, x.view(), routing, best);
    const double apart = relative_error(y_there.view(), y.view());
    std::printf("       on %s: %.2e from the CPU's; loaded in %.2f s; %.3f ms\n",
                nvfp4::device_name(a.device).c_str(), apart, load_there, best * 1e3);
    good &= apart < (w4a4 ? 0.03 : 0.01);
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  const Arguments a = parse(argc, argv);
  if (!a.folder.empty()) return run(a, a.folder);
  const TemporaryFolder folder;
  return run(a, folder.path);
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
