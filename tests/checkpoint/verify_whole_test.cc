#include "checkpoint/checkpoints.h"

/// Checkpoints of which a part is missing, or is not as the rest.
namespace nvfp4::verify_whole_test {

class VerifyWhole : public testing::Test {
 protected:
  VerifyReport verify(const fs::path& path, const std::string& loader = "") const {
    auto options = verify_options(path);
    options.loader = loader;
    return verify_checkpoint(options);
  }

  TempDir dir_;
};

/// A small DeepSeek-V3.
void write_experts(const std::filesystem::path& folder) {
  sample_checkpoint(sample_options(folder, {"--arch", "deepseek-v3", "--scale", 0.03125}));
}

std::int64_t times(const VerifyReport& report, const std::string& code) {
  return std::ranges::count(report.findings, code, &Finding::code);
}

TEST_F(VerifyWhole, ExpertLayersThatQuantizeWarnsAboutAreErrors) {
  write_experts(dir_ / "deepseek");
  for (const char* format : {"modelopt", "compressed-tensors"})
    for (const char* kept : {"*.experts.3.*", "*.experts.*.gate_proj", "*.experts.*"}) {
      auto options =
          quantize_options(dir_ / "deepseek", dir_ / "out", {"--format", format, "--ignore", kept});
      std::filesystem::remove_all(options.output);
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
        // Whatever else the loader asked for cannot take: other formats, quantized MTP layers.
        const bool refused = times(report, "loader-format") + times(report, "mtp-quantized") > 0;
        EXPECT_EQ(report.broken(), !found.empty() || refused) << text_of(report);
      }
    }
}

TEST_F(VerifyWhole, AnExpertIsMissing) {
  write_experts(dir_ / "in");
  quantize_checkpoint(dir_ / "in", dir_ / "out");
  EXPECT_EQ(times(verify(dir_ / "out"), "missing-expert"), 0);
  const auto edit = [&](const std::function<void(LoadedFolder&)>& change) {
    LoadedFolder folder(dir_ / "out");
    change(folder);
    folder.write(dir_ / "out");
  };
  std::set<std::string> lists;  // of experts
  std::int64_t last = 0;
  edit([&](LoadedFolder& f) {
    last = f.config["n_routed_experts"].get<std::int64_t>() - 1;
    for (const auto& [file, shard] : f.shards)
      for (const TestTensor& t : shard)
        if (const auto at = t.spec.name.find(".experts."); at != std::string::npos)
          lists.insert(t.spec.name.substr(0, at + 8));
    ASSERT_GE(lists.size(), 2U);
    f.remove_module(*lists.begin() + ".3");
    f.remove_module(*lists.rbegin() + "." + std::to_string(last));
  });
  const VerifyReport report = verify(dir_ / "out");
  EXPECT_EQ(times(report, "missing-expert"), 2) << text_of(report);
  EXPECT_EQ(times(report, "missing-linear"), 0) << text_of(report);
  for (const std::string& expert :
       {*lists.begin() + ".3", *lists.rbegin() + "." + std::to_string(last)})
    EXPECT_THAT(text_of(report),
                HasSubstr(fmt::format("{}: missing, {} of {} experts", expert, last, last + 1)));
  // A layer may have fewer, if nobody counts them.
  edit([&](LoadedFolder& f) {
    f.remove_module(*lists.begin());
    f.config["n_routed_experts"] = last + 2;
  });
  EXPECT_EQ(times(verify(dir_ / "out"), "missing-expert"), 0);
}

}  // namespace nvfp4::verify_whole_test
