#include "checkpoint/checkpoints.h"

/// The verdicts of each loader: reads, refuses, misreads or unknown.
namespace nvfp4::verify_loaders_test {

using enum Verdict;
using Verdicts = std::map<std::string, Verdict>;

Verdicts verdicts_of(const VerifyReport& report) {
  Verdicts verdicts;
  for (const LoaderVerdict& v : report.loaders) verdicts[v.loader] = v.verdict;
  return verdicts;
}

class VerifyLoaders : public testing::Test {
 protected:
  VerifyLoaders() { write_tiny_llama(source_); }
  void quantize(const std::string& format) {
    fs::remove_all(options_.path);
    quantize_checkpoint(source_, options_.path, {"--format", format, "--scheme", "w4a16"});
  }
  VerifyReport report(const std::string& loader = "") {
    options_.loader = loader;
    return verify_checkpoint(options_);
  }
  void edit(const std::function<void(LoadedFolder&)>& change) const {
    LoadedFolder folder(options_.path);
    change(folder);
    folder.write(options_.path);
  }

  TempDir dir_;
  const fs::path source_ = dir_ / "source";
  VerifyOptions options_ = verify_options(dir_ / "output");
};

TEST_F(VerifyLoaders, OnlyTheRequestedLoaderDecides) {
  quantize("modelopt");
  const VerifyReport all = report();
  EXPECT_EQ(verdicts_of(all), (Verdicts{{"vllm", reads},
                                        {"sglang", reads},
                                        {"tensorrt-llm", unknown},
                                        {"transformers", refuses},
                                        {"transformers+nvfp4", unknown},
                                        {"llama.cpp", unknown}}));
  EXPECT_FALSE(all.broken());
  EXPECT_TRUE(all.findings.empty()) << text_of(all);
  for (const std::string_view loader : known_loaders()) {
    const VerifyReport one = report(std::string(loader));
    ASSERT_EQ(one.loaders.size(), 1u);
    EXPECT_EQ(one.broken(), loader == "transformers") << loader;
    if (loader == "diffusers")
      EXPECT_TRUE(one.is_unknown());  // and no verdict without the request
    else
      EXPECT_EQ(one.is_unknown(), verdicts_of(all).at(std::string(loader)) == unknown) << loader;
  }
  const auto json = nlohmann::json::parse(to_json(all)).at("loaders");
  EXPECT_EQ(json.at("vllm").at("verdict"), "reads");
  EXPECT_EQ(json.at("transformers").at("verdict"), "refuses");
  EXPECT_EQ(json.at("transformers").at("code"), "loader-format");
}

TEST_F(VerifyLoaders, PartOfPipelineIsForDiffusers) {
  quantize("modelopt");
  EXPECT_FALSE(verdicts_of(report()).contains("diffusers"));
  edit([](LoadedFolder& f) { f.config["_class_name"] = "FluxTransformer2DModel"; });
  EXPECT_EQ(verdicts_of(report()), (Verdicts{{"diffusers", unknown}}));
  EXPECT_NE(report().loaders.at(0).text.find("--for diffusers"), std::string::npos);
  EXPECT_EQ(verdicts_of(report("vllm")), (Verdicts{{"vllm", reads}}));
  options_.asked = {"diffusers"};
  options_.answers = R"({"diffusers": {"verdict": "reads", "text": "built",
      "version": "diffusers 0.42.1", "tensors": {}}})";
  EXPECT_EQ(verdicts_of(report()), (Verdicts{{"diffusers", reads}}));
}

TEST_F(VerifyLoaders, ExpertsInSglangAreUnknown) {
  std::vector<TestTensor> tensors;
  for (const char* part : {"gate_proj", "up_proj", "down_proj"})
    tensors.push_back(
        random_tensor(fmt::format("model.layers.0.mlp.experts.0.{}.weight", part), {64, 64}));
  write_model(dir_ / "experts", {tensors}, kLlamaConfig);
  quantize_checkpoint(dir_ / "experts", options_.path, {"--format", "compressed-tensors"});
  EXPECT_EQ(report("vllm").loaders.at(0).verdict, reads);
  const LoaderVerdict sglang = report("sglang").loaders.at(0);
  EXPECT_EQ(sglang.verdict, unknown);
  EXPECT_NE(sglang.text.find("without a Blackwell GPU"), std::string::npos) << sglang.text;
}

TEST_F(VerifyLoaders, FaultsOverruleAnswers) {
  quantize("compressed-tensors");
  options_.answers = R"({"transformers": {"verdict": "reads", "text": "built",
      "version": "transformers 5.24.0", "tensors": {"tied": ["lm_head.weight"]}}})";
  const VerifyReport one = report("transformers");
  EXPECT_EQ(one.loaders.at(0).verdict, reads);
  EXPECT_EQ(one.loaders.at(0).version, "transformers 5.24.0");
  EXPECT_EQ(one.loaders.at(0).tensors.at("tied"), std::vector<std::string>{"lm_head.weight"});
  edit([](LoadedFolder& f) {
    f.set_scalar("model.layers.0.self_attn.q_proj.weight_global_scale", -1);
  });
  EXPECT_EQ(report("transformers").loaders.at(0).verdict, misreads);
  for (const char* wrong : {"{\"transformers\": 3}", "["}) {
    options_.answers = wrong;
    EXPECT_THROW(report(), FormatError) << wrong;
  }
}

}  // namespace nvfp4::verify_loaders_test
