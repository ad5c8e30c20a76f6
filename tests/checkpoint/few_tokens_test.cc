// Experts that saw few tokens: their Gram matrices are completed by those of their layer.
#include "checkpoint/statistics/statistics.h"
#include "checkpoint/statistics_file.h"
#include "nvfp4/format.h"
#include "report/report.h"
#include "testing.h"

namespace nvfp4::few_tokens_test {

/// Four experts over one layer's inputs, of which one saw fewer tokens than it has channels.
struct FewTokens : testing::Test {
  static constexpr std::int64_t kRows = 96, kDepth = 64;
  static constexpr int kStarved = 2;
  TempDir dir;
  std::map<std::string, TestStatistics> statistics;
  FewTokens() {
    std::vector<TestTensor> tensors;
    for (int e = 0; e < 4; ++e) {
      tensors.push_back(random_tensor(module(e) + ".weight", {kRows, kDepth}));
      statistics[module(e)] = gram_statistics(module(e), kDepth, e == kStarved ? 20 : 4000);
    }
    write_model(dir / "in", {tensors}, "{}");
  }
  static std::string module(int e) {
    return fmt::format("model.layers.0.mlp.experts.{}.gate_proj", e);
  }
  QuantizeReport run(const std::string& out, const std::string& method = "gptq") {
    write_statistics(dir / "stats.safetensors", statistics);
    return quantize_checkpoint(dir / "in", dir / out,
                               {"--method", method, "--statistics", dir / "stats.safetensors"});
  }

  /// Returns the output error of the starved expert, tr(E H Eᵀ), with H of tokens that calibration
  /// did not use.
  double held_out_error(const std::string& out) const {
    const TestStatistics seen = gram_statistics("held out", kDepth, 4000);
    const LoadedModel a(dir / "in"), b(dir / out);
    const auto& weight = a.at(module(kStarved) + ".weight").bytes;
    const auto &codes = b.at(module(kStarved) + ".weight").bytes,
               &scales = b.at(module(kStarved) + ".weight_scale").bytes;
    float global = 0;
    std::memcpy(&global, b.at(module(kStarved) + ".weight_scale_2").bytes.data(), sizeof global);
    double total = 0;
    for (std::size_t row = 0; row < kRows; ++row) {
      std::vector<double> error;
      for (std::size_t k = 0; k < kDepth; ++k) {
        const std::size_t at = row * kDepth + k;
        const auto pair = static_cast<unsigned>(codes[at / 2]);
        const E2M1 code{static_cast<std::uint8_t>(at % 2 ? pair >> 4 : pair & 15)};
        const E4M3 scale{static_cast<std::uint8_t>(scales[at / kBlock])};
        std::uint32_t bits = 0;  // BF16
        std::memcpy(reinterpret_cast<char*>(&bits) + 2, &weight[2 * at], 2);
        error.push_back(static_cast<double>(std::bit_cast<float>(bits)) -
                        static_cast<double>(code.to_float() * scale.to_float() * global));
      }
      std::size_t at = 0;
      for (std::size_t i = 0; i < kDepth; ++i)
        for (std::size_t j = i; j < kDepth; ++j)
          total +=
              (i == j ? 1 : 2) * error[i] * error[j] * static_cast<double>(seen.triangle[at++]);
    }
    return total;
  }
};

TEST_F(FewTokens, ExpertIsCompletedByItsLayer) {
  const QuantizeReport report = run("out");
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_THAT(
      report.warnings[0],
      HasSubstr("1 of 4 weights are of experts that got fewer than 4 tokens for each channel"));
  // The same, written out: H + n · (mean of H over all tokens of the layer).
  TestStatistics& few = statistics[module(kStarved)];
  std::vector<double> mean(few.triangle.size());
  double tokens = 0;
  for (const auto& [name, s] : statistics) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(s.triangle[i]);
    tokens += static_cast<double>(s.count);
  }
  const double wanted = checkpoint::kExpertTokens * static_cast<double>(kDepth);
  const double missing = wanted - static_cast<double>(few.count);
  for (std::size_t i = 0; i < mean.size(); ++i)
    few.triangle[i] =
        static_cast<float>(static_cast<double>(few.triangle[i]) + missing * mean[i] / tokens);
  few.count = static_cast<float>(wanted);
  EXPECT_EQ(run("completed").warnings, std::vector<std::string>{});
  // FP32 in the file rounds H: nearly every code is the same.
  const LoadedModel a(dir / "out"), b(dir / "completed");
  std::size_t other = 0;
  const auto &codes = a.at(module(kStarved) + ".weight").bytes,
             &want = b.at(module(kStarved) + ".weight").bytes;
  for (std::size_t i = 0; i < codes.size(); ++i) other += codes[i] != want[i];
  EXPECT_LT(other, codes.size() / 20);
}

TEST_F(FewTokens, ExpertKeepsItsOutputOnOtherText) {
  run("completed");
  run("mse", "mse");
  // Alone it is no expert of a layer: it has its own H.
  std::erase_if(statistics, [](const auto& s) { return s.first != module(kStarved); });
  run("own");
  const double completed = held_out_error("completed");
  EXPECT_LT(completed, 0.7 * held_out_error("own"));
  EXPECT_LT(completed, 0.7 * held_out_error("mse"));
}

TEST_F(FewTokens, AnyNumberOfThreadsGivesTheSameBytes) {
  statistics[module(0)] = gram_statistics("few", kDepth, 60);  // two of one layer are completed
  std::map<std::string, std::string> first;
  for (const int count : {1, 2, 5}) {
    set_threads(count);
    run(fmt::format("out{}", count));
    const auto files = files_of(dir / fmt::format("out{}", count));
    if (first.empty()) first = files;
    EXPECT_EQ(files, first) << count;
  }
  set_threads(0);
}

TEST_F(FewTokens, PageShowsThemBesideOutputErrors) {
  write_text(dir / "run.json", to_json(run("out")));
  const std::string page =
      report::page_of(compare_checkpoints(dir / "in", dir / "out"), dir / "in", dir / "out", 0, {},
                      {.run = dir / "run.json", .statistics = dir / "stats.safetensors"});
  const std::size_t tokens = page.find("Tokens of the calibration text for each expert");
  ASSERT_NE(tokens, std::string::npos);
  // Experts, fewest, median, most, without any.
  EXPECT_NE(page.find("<td>4</td><td>20</td><td>4000</td><td>4000</td><td>0</td>", tokens),
            std::string::npos);
  EXPECT_THAT(page, HasSubstr("Output error by layer"));
}

TEST_F(FewTokens, ExpertsWithoutTokensAddNothingToTheLayer) {
  statistics[module(kStarved)].count = 0;
  const QuantizeReport report = run("out");
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_THAT(report.warnings[0], HasSubstr("1 of 4 weights got no token"));
}

}  // namespace nvfp4::few_tokens_test
