// Checkpoints quantized by the Gram matrices of their layers' inputs.
#include "checkpoint/statistics_file.h"
#include "testing.h"

namespace nvfp4::gptq_checkpoint_test {

const std::string kDown = "model.layers.0.mlp.down_proj", kGate = "model.layers.1.mlp.gate_proj",
                  kUp = "model.layers.1.mlp.up_proj";

struct GptqCheckpoint : testing::Test {
  TempDir dir;
  std::map<std::string, TestStatistics> statistics = llama_statistics();
  safetensors::Metadata metadata = {{"nvfp4_statistics", "1"},
                                    {"same_input", "{\"" + kUp + "\": \"" + kGate + "\"}"}};

  GptqCheckpoint() {
    write_tiny_llama(dir / "in");
    for (auto& [module, s] : statistics) s = gram_statistics(module, s.diagonal.size(), 200);
    statistics[kUp] = statistics[kGate];
    statistics[kUp].triangle.clear();
  }

  QuantizeCheckpointOptions options(const std::string& out) {
    write_statistics(dir / "stats.safetensors", statistics, metadata);
    return quantize_options(dir / "in", dir / out,
                            {"--method", "gptq", "--statistics", dir / "stats.safetensors"});
  }
  template <class E>
  void refused(std::initializer_list<std::string_view> parts) {
    expect_error<E>([&] { quantize_checkpoint(options("refused")); }, parts);
    EXPECT_FALSE(fs::exists(dir / "refused" / "config.json"));
  }
};

/// The candidate of each row: "3323"; and what TensorReport::chosen counts are these.
std::string rows_of(const TensorReport& t) {
  std::string rows;
  for (const ChosenRows& run : t.chosen_rows) {
    EXPECT_TRUE(rows.empty() || rows.back() != static_cast<char>('0' + run.candidate)) << t.name;
    rows.append(static_cast<std::size_t>(run.rows), static_cast<char>('0' + run.candidate));
  }
  for (std::size_t c = 0; c < t.chosen.size(); ++c)
    EXPECT_EQ(std::ranges::count(rows, static_cast<char>('0' + c)), t.chosen[c]) << t.name;
  return rows;
}

TEST_F(GptqCheckpoint, ThreadsChangeNoBytesAndRowsAreCounted) {
  std::map<std::string, std::string> first, first_decisions;
  for (const int count : {1, 2, 5}) {
    std::map<std::string, std::string> decisions;
    set_threads(count);
    const QuantizeReport report = quantize_checkpoint(options(fmt::format("out{}", count)));
    EXPECT_EQ(report.warnings, std::vector<std::string>{});
    for (const TensorReport& t : report.tensors) {
      if (t.action != "quantized") continue;
      EXPECT_EQ(t.chosen[0] + t.chosen[1] + t.chosen[2] + t.chosen[3], t.shape[0]) << t.name;
      EXPECT_GT(t.chosen[3], t.shape[0] / 2) << t.name;
      decisions[t.name] = rows_of(t);
    }
    if (count == 1) first_decisions = decisions;
    EXPECT_EQ(decisions, first_decisions) << count;
    const auto files = files_of(dir / fmt::format("out{}", count));
    if (first.empty()) first = files;
    EXPECT_EQ(files, first) << count;
  }
  set_threads(0);
  auto weighted = options("weighted");
  weighted.method.clear();
  quantize_checkpoint(weighted);
  EXPECT_NE(files_of(dir / "weighted"), first);
}

TEST_F(GptqCheckpoint, WithoutGramMatrixIsQuantizedByWeighted) {
  statistics[kDown].triangle.clear();
  const QuantizeReport report = quantize_checkpoint(options("out"));
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_THAT(report.warnings[0], HasSubstr("no Gram matrix of 1 of 14 weights"));
  EXPECT_THAT(report.warnings[0], HasSubstr(kDown));
  auto weighted = options("weighted");
  weighted.method = "weighted";
  quantize_checkpoint(weighted);
  const LoadedModel a(dir / "out"), b(dir / "weighted");
  for (const char* part : {".weight", ".weight_scale"})
    EXPECT_EQ(a.at(kDown + part).bytes, b.at(kDown + part).bytes);
  EXPECT_NE(a.at(kGate + ".weight").bytes, b.at(kGate + ".weight").bytes);
}

TEST_F(GptqCheckpoint, InputsOfZerosAreAccepted) {
  auto& s = statistics[kDown];
  s.diagonal.assign(s.diagonal.size(), 0.0f);
  s.triangle.assign(s.triangle.size(), 0.0f);
  EXPECT_EQ(quantize_checkpoint(options("out")).warnings, std::vector<std::string>{});
}

TEST_F(GptqCheckpoint, BrokenGramMatricesAreRefused) {
  const std::vector<float> good = statistics[kDown].triangle;
  statistics[kDown].triangle[1] = std::numeric_limits<float>::quiet_NaN();
  refused<FormatError>({kDown + ".gram", "nan", "finite"});
  statistics[kDown].triangle = good;
  statistics[kDown].triangle[0] = -1;
  refused<FormatError>({kDown + ".gram", "-1", "negative"});
  statistics[kDown].triangle = good;
  statistics[kDown].triangle[1] = 1e6f;
  refused<FormatError>({kDown, "not positive definite"});
  statistics[kDown].triangle.pop_back();
  refused<FormatError>({kDown + ".gram", "8255", "8256", "[128, 128]"});
}

/// The report of a resumed run has the choices and errors of the interrupted run.
TEST_F(GptqCheckpoint, ResumedRunHasTheSameFilesAndReport) {
  const auto text_of = [](QuantizeReport report) {
    report.seconds = 0;
    report.peak_memory_bytes = 0;
    report.shards_reused = 0;
    return to_json(report);
  };
  const std::string whole = text_of(quantize_checkpoint(options("whole")));
  EXPECT_THAT(whole, HasSubstr("output_error"));
  auto interrupted = options("out");
  interrupted.progress = [&](const Progress&) {
    if (fs::exists(dir / "out" / "model-00001-of-00003.safetensors")) throw IoError("stop");
  };
  EXPECT_THROW(quantize_checkpoint(interrupted), IoError);
  auto resumed = options("out");
  resumed.resume = true;
  const QuantizeReport report = quantize_checkpoint(resumed);
  EXPECT_GT(report.shards_reused, 0);
  EXPECT_EQ(text_of(report), whole);
  EXPECT_EQ(files_of(dir / "out"), files_of(dir / "whole"));
}

TEST_F(GptqCheckpoint, KeptOutputErrorIsAtMostMses) {
  for (const TensorReport& t : quantize_checkpoint(options("out")).tensors) {
    if (t.action != "quantized") continue;
    EXPECT_GT(t.output.kept, 0) << t.name;
    EXPECT_LT(t.output.kept, 0.8 * t.output.mse) << t.name;
  }
}

TEST_F(GptqCheckpoint, StatisticsOfAnotherModelAreRefused) {
  std::map<std::string, TestStatistics> narrow = statistics;
  narrow[kDown] = gram_statistics(kDown, 96, 200);
  std::swap(narrow, statistics);
  refused<ValueError>({kDown, "96 channels there and 128 in the model", "another model"});
  statistics = {{"encoder.block.0.wi", gram_statistics("wi", 64, 200)}};
  refused<ValueError>({"has none of the 14 weights", "another model"});
}

TEST_F(GptqCheckpoint, WeightWithoutTokensIsQuantizedByMse) {
  statistics[kDown].count = 0;
  const QuantizeReport report = quantize_checkpoint(options("out"));
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_THAT(report.warnings[0],
              HasSubstr("1 of 14 weights got no token, they are quantized as by mse"));
  auto mse = options("mse");
  mse.method = "mse";
  quantize_checkpoint(mse);
  const LoadedModel a(dir / "out"), b(dir / "mse");
  for (const char* part : {".weight", ".weight_scale"})
    EXPECT_EQ(a.at(kDown + part).bytes, b.at(kDown + part).bytes);
}

TEST_F(GptqCheckpoint, SaysWhatIsMissing) {
  auto without = options("out");
  without.statistics.reset();
  expect_error<ValueError>([&] { quantize_checkpoint(without); },
                           {"method = gptq", "Gram matrix", "--statistics"});
  for (auto& [module, s] : statistics) s.triangle.clear();
  refused<ValueError>({"does not hold the Gram matrix", "--keep-gram"});
  for (const char* wrong : {"gptq:-1", "gptq:", "gptq:4x", "gptq:1001", "mse:4"}) {
    auto run = options("out");
    run.method = wrong;
    expect_error<ValueError>([&] { quantize_checkpoint(run); }, {wrong, "gptq:N"});
  }
}

TEST_F(GptqCheckpoint, ResumeRejectsOtherSweeps) {
  auto run = options("out");
  run.method = "gptq:1";
  quantize_checkpoint(run);
  run.resume = true;
  EXPECT_GT(quantize_checkpoint(run).shards_reused, 0);
  run.method = "gptq:0";
  expect_error<ValueError>([&] { quantize_checkpoint(run); }, {"resume"});
}

}  // namespace nvfp4::gptq_checkpoint_test
