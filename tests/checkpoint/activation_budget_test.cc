#include "checkpoint/checkpoints.h"
#include "checkpoint/statistics_file.h"

/// W4A4 layers chosen for a share of the multiplications.
namespace nvfp4::activation_budget_test {

class W4A4 : public ::testing::Test {
 protected:
  W4A4() { write_tiny_llama(in_); }

  /// Returns statistics in which the error of quantized inputs is that in `of`, otherwise 1.
  static std::map<std::string, TestStatistics> statistics(const std::map<std::string, float>& of) {
    std::map<std::string, TestStatistics> all = llama_statistics();
    for (auto& [module, s] : all) {
      s.amax = 2;
      s.sensitivity = {1e-3f};
      s.input_sensitivity = {8 * std::pow(of.contains(module) ? of.at(module) : 1, 0.25f), 8};
    }
    return all;
  }
  QuantizeCheckpointOptions options(double share, std::optional<double> bits = {}) const {
    auto options =
        quantize_options(in_, out_, {"--w4a4", share, "--statistics", dir_ / "s", "--overwrite"});
    options.bits = bits;
    return options;
  }
  QuantizeReport run(const std::map<std::string, TestStatistics>& all, double share,
                     std::optional<double> bits = {}) const {
    write_statistics(dir_ / "s", all);
    return quantize_checkpoint(options(share, bits));
  }
  /// Returns the modules of NVFP4 weights that have an input scale, or those that have none.
  std::set<std::string> modules(bool with_input_scale) const {
    const LoadedModel out(out_);
    std::set<std::string> found;
    for (const auto& [name, tensor] : out.tensors) {
      const std::string module = name.substr(0, name.rfind('.'));
      if (name.ends_with(".weight_scale_2") &&
          out.tensors.contains(module + ".input_scale") == with_input_scale)
        found.insert(module);
    }
    return found;
  }

  const TempDir dir_;
  const fs::path in_ = dir_ / "in", out_ = dir_ / "out";
};

TEST_F(W4A4, MostSensitiveLayersBecomeW4A16) {
  std::map<std::string, float> of;
  std::set<std::string> attention;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    attention.insert(fmt::format("model.layers.1.self_attn.{}", name));
    of[fmt::format("model.layers.1.self_attn.{}", name)] = 100;
  }
  const QuantizeReport report = run(statistics(of), 0.875);
  EXPECT_EQ(modules(false), attention);
  EXPECT_EQ(report.curve_over, "w4a16");
  EXPECT_EQ(report.error_of, "last hidden state");
  EXPECT_EQ(report.curve.front().budget, 0);
  EXPECT_NEAR(report.curve.front().error, 107, 1e-4) << "seven layers of 1, and one of 100";
  EXPECT_NEAR(report.curve.back().budget, 100, 1e-9);
  EXPECT_EQ(report.curve.back().error, 0);
  run(statistics(of), 1);
  EXPECT_TRUE(modules(false).empty());
  run(statistics(of), 0);
  EXPECT_TRUE(modules(true).empty());
}

TEST_F(W4A4, TokensOfTheStatisticsWeighLayers) {
  const std::string small = "model.layers.0.mlp.down_proj", large = "model.layers.1.mlp.down_proj";
  auto all = statistics({{small, 3}});
  for (auto& [module, s] : all) s.count = module == small ? 50 : module == large ? 150 : 0;
  run(all, 0.75);
  EXPECT_TRUE(modules(false).contains(small));
  EXPECT_TRUE(modules(true).contains(large));
}

TEST_F(W4A4, WithBits_BothBudgetsAreKept) {
  const QuantizeReport report = run(statistics({}), 0.5, 6);
  EXPECT_EQ(report.curve_over, "bits");
  const std::set<std::string> w4a4 = modules(true);
  double bytes = 0, all = 0, multiplications = 0;
  for (const TensorReport& t : report.tensors) {
    if (!t.name.ends_with("_proj.weight")) continue;
    const auto n = static_cast<double>(element_count(t.shape));
    bytes += static_cast<double>(t.bytes_after);
    all += n;
    if (w4a4.contains(t.name.substr(0, t.name.rfind('.')))) multiplications += n;
  }
  EXPECT_LE(8 * bytes, 6 * all);
  EXPECT_GE(8 * bytes, 5 * all);
  EXPECT_GE(multiplications, 0.5 * all);
  EXPECT_LT(multiplications, all);
}

TEST_F(W4A4, MissingOrWrongSensitivitiesAreErrors) {
  const std::string module = "model.layers.0.mlp.up_proj";
  auto all = statistics({});
  all[module].input_sensitivity.clear();
  expect_error<ValueError>(
      [&] { run(all, 0.5); },
      {"w4a4 = 0.5", "no input sensitivity of 1 of 14 weights: " + module, "nvfp4 calibrate"});
  all = statistics({});
  all[module].sensitivity.clear();
  expect_error<ValueError>([&] { run(all, 0.5, 6); },
                           {"w4a4 = 0.5", "no sensitivity of 1 of 14 weights: " + module});
  for (const std::vector<float>& wrong : std::vector<std::vector<float>>{
           {0, 1}, {1, 0}, {-1, 2}, {1, -2}, {NAN, 1}, {INFINITY, 1}, {1}, {1, 2, 3}}) {
    all = statistics({});
    all[module].input_sensitivity = wrong;
    expect_error<FormatError>([&] { run(all, 0.5); }, {module + ".input_sensitivity"});
  }
}

TEST_F(W4A4, OptionsThatDoNotFitAreErrors) {
  write_statistics(dir_ / "s", statistics({}));
  const auto fails = [&](auto change, std::initializer_list<std::string_view> words) {
    auto given = options(0.5);
    change(given);
    expect_error<ValueError>([&] { quantize_checkpoint(given); }, words);
  };
  fails([](auto& o) { o.w4a4 = 1.5; }, {"w4a4 = 1.5", "from 0 to 1"});
  fails([](auto& o) { o.statistics.reset(); }, {"w4a4 = 0.5", "statistics are not set"});
  fails([](auto& o) { o.scheme = Scheme::w4a16; }, {"w4a4 = 0.5", "scheme w4a16"});
  fails([](auto& o) { o.recipe = "mlp"; }, {"w4a4 = 0.5", "recipe"});
  fails([](auto& o) { o.format = "mlx"; },
        {"w4a4 = 0.5", "format mlx has no scales of inputs", "hint"});
}

}  // namespace nvfp4::activation_budget_test
