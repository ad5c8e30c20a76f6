#include <gtest/gtest.h>

#include "checkpoint/expect_error.h"
#include "checkpoint/faults.h"
#include "checkpoint/findings.h"
#include "nvfp4/error.h"
#include "nvfp4/verify.h"

/// Checkpoints of which a part is missing, or is not as the rest.
namespace nvfp4 {
namespace {

using namespace faults;

class VerifyWhole : public testing::Test {
 protected:
  VerifyReport verify(const fs::path& path, const std::string& loader = "") const {
    VerifyOptions options;
    options.path = path;
    options.loader = loader;
    return verify_checkpoint(options);
  }

  TempDir dir_;
};

std::int64_t times(const VerifyReport& report, const std::string& code) {
  return std::ranges::count(report.findings, code, &Finding::code);
}

TEST_F(VerifyWhole, ExpertLayersThatQuantizeWarnsAboutAreErrors) {
  SampleOptions sample;
  sample.output = dir_ / "deepseek";
  sample.arch = "deepseek-v3";
  sample.scale = 0.03125;
  sample_checkpoint(sample);
  for (const char* format : {"modelopt", "compressed-tensors"})
    for (const char* kept : {"*.experts.3.*", "*.experts.*.gate_proj", "*.experts.*"}) {
      auto options = quantize_options(dir_ / "deepseek", dir_ / "out");
      options.format = format;
      options.ignore = {kept};
      options.overwrite = true;
      const QuantizeReport written = quantize_checkpoint(options);
      for (const char* loader : {"", "vllm", "sglang", "tensorrt-llm"}) {
        const VerifyReport report = verify(options.output, loader);
        std::vector<std::string> found;
        for (const Finding& f : report.findings)
          if (f.code == "fused-partly") found.push_back(f.text);
        std::vector<std::string> warned;
        for (const std::string& line : written.warnings)
          if (line.find("partly") != line.npos) warned.push_back(line);
        EXPECT_EQ(found, warned) << kept << ' ' << loader << text_of(report);
        EXPECT_EQ(found.empty(), std::string(kept) == "*.experts.*");
        EXPECT_EQ(report.broken(), !found.empty()) << text_of(report);
      }
    }
}

TEST_F(VerifyWhole, StackedExpertsArePartlyQuantizedToo) {
  write_model(dir_ / "in",
              {{random_tensor("model.layers.0.mlp.experts.gate_up_proj", {2, 64, 96}),
                random_tensor("model.layers.0.mlp.experts.down_proj", {2, 48, 64})}},
              R"({"model_type": "llama4", "hidden_size": 64})");
  auto options = quantize_options(dir_ / "in", dir_ / "out");
  options.ignore = {"*.down_proj"};
  quantize_checkpoint(options);
  EXPECT_EQ(times(verify(options.output), "fused-partly"), 1);
}

}  // namespace
}  // namespace nvfp4
