#include "checkpoint/checkpoints.h"
#include "checkpoint/faults.h"

/// The verdicts of each loader: reads, refuses, misreads or unknown.
namespace nvfp4::verify_loaders_test {

using namespace faults;
using enum Verdict;
using Verdicts = std::map<std::string, Verdict>;

Verdicts verdicts_of(const VerifyReport& report) {
  Verdicts verdicts;
  for (const LoaderVerdict& v : report.loaders) verdicts[v.loader] = v.verdict;
  return verdicts;
}

class VerifyLoaders : public testing::Test {
 protected:
  VerifyLoaders() {
    write_tiny_llama(bed_.source);
    bed_.options.path = bed_.output;
  }
  void quantize(const std::string& format, Scheme scheme = Scheme::w4a16) {
    auto options =
        quantize_options(bed_.source, bed_.output, {"--format", format, "--scheme", scheme});
    std::filesystem::remove_all(options.output);
    quantize_checkpoint(options);
  }
  VerifyReport report(const std::string& loader = "") {
    bed_.options.loader = loader;
    return verify_checkpoint(bed_.options);
  }
  bool broken_for(const std::string& loader) { return report(loader).broken(); }

  TempDir dir_;
  Bed bed_{dir_ / "source", dir_ / "output", {}};
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

TEST_F(VerifyLoaders, FaultIsJudgedByEachLoader) {
  quantize("modelopt", Scheme::w4a4);
  plants().at("fused-globals")(bed_);
  EXPECT_TRUE(report().broken());
  EXPECT_EQ(verdicts_of(report()), (Verdicts{{"vllm", misreads},
                                             {"sglang", misreads},
                                             {"tensorrt-llm", refuses},
                                             {"transformers", refuses},
                                             {"transformers+nvfp4", unknown},
                                             {"llama.cpp", unknown}}));
  EXPECT_FALSE(broken_for("llama.cpp")) << "it fuses nothing";
  quantize("modelopt", Scheme::w4a4);
  plants().at("fused-input-scales")(bed_);
  EXPECT_FALSE(report().broken());
  EXPECT_TRUE(broken_for("tensorrt-llm"));
  EXPECT_FALSE(broken_for("vllm"));
}

TEST_F(VerifyLoaders, FormatWithoutLoaderIsNotBroken) {
  quantize("comfyui");
  EXPECT_FALSE(report().broken()) << text_of(report());
  for (const std::string_view loader : known_loaders())
    EXPECT_TRUE(broken_for(std::string(loader))) << loader;
}

TEST_F(VerifyLoaders, PartOfPipelineIsForDiffusers) {
  quantize("modelopt");
  EXPECT_FALSE(verdicts_of(report()).contains("diffusers"));
  bed_.edit([](LoadedFolder& f) { f.config["_class_name"] = "FluxTransformer2DModel"; });
  EXPECT_EQ(verdicts_of(report()), (Verdicts{{"diffusers", unknown}}));
  EXPECT_NE(report().loaders.at(0).text.find("--for diffusers"), std::string::npos);
  EXPECT_EQ(verdicts_of(report("vllm")), (Verdicts{{"vllm", reads}}));
  bed_.options.asked = {"diffusers"};
  bed_.options.answers = R"({"diffusers": {"verdict": "reads", "text": "built",
      "version": "diffusers 0.42.1", "tensors": {}}})";
  EXPECT_EQ(verdicts_of(report()), (Verdicts{{"diffusers", reads}}));
}

struct Known {
  const char *type, *architecture;
  std::map<std::string, Verdict> verdicts;  ///< of loaders that do not say unknown
};

TEST_F(VerifyLoaders, UnknownModelsAreReadByNobody) {
  const Known models[] = {
      {"llama", "LlamaForCausalLM", {{"vllm", reads}, {"sglang", reads}}},
      {"llama", "FooForBar", {}},
      {"foo", "LlamaForCausalLM", {{"llama.cpp", refuses}}},
      {"vit", "ViTForImageClassification", {{"llama.cpp", refuses}}},
      {"whisper", "WhisperForConditionalGeneration", {{"llama.cpp", refuses}}},
      {"", "", {{"llama.cpp", refuses}}},
      {"lla ma", " LlamaForCausalLM ", {{"llama.cpp", refuses}}},
  };
  for (const Known& model : models) {
    SCOPED_TRACE(std::string(model.type) + ' ' + model.architecture);
    quantize("compressed-tensors");
    bed_.edit([&](LoadedFolder& f) {
      f.config["model_type"] = model.type;
      f.config["architectures"] = {model.architecture};
    });
    const VerifyReport all = report();
    EXPECT_FALSE(all.broken()) << text_of(all);
    for (const LoaderVerdict& v : all.loaders) {
      if (v.loader == "tensorrt-llm") continue;  // it does not read the format
      const auto it = model.verdicts.find(v.loader);
      EXPECT_EQ(v.verdict, it == model.verdicts.end() ? unknown : it->second) << v.loader;
      EXPECT_FALSE(v.text.empty());
    }
  }
}

TEST_F(VerifyLoaders, ExpertsInSglangAreUnknown) {
  bed_.experts();
  EXPECT_EQ(report("vllm").loaders.at(0).verdict, reads);
  const LoaderVerdict sglang = report("sglang").loaders.at(0);
  EXPECT_EQ(sglang.verdict, unknown);
  EXPECT_NE(sglang.text.find("without a Blackwell GPU"), std::string::npos) << sglang.text;
}

TEST_F(VerifyLoaders, UnknownVerdictIsNoFault) {
  quantize("modelopt");
  const VerifyReport one = report("tensorrt-llm");
  EXPECT_TRUE(one.is_unknown());
  EXPECT_FALSE(one.broken());
  EXPECT_NE(one.loaders.at(0).text.find("TensorRT-LLM"), std::string::npos);
}

TEST_F(VerifyLoaders, FaultsOverruleAnswers) {
  quantize("compressed-tensors");
  bed_.options.answers = R"({"transformers": {"verdict": "reads", "text": "built",
      "version": "transformers 5.24.0", "tensors": {"tied": ["lm_head.weight"]}}})";
  const VerifyReport one = report("transformers");
  EXPECT_EQ(one.loaders.at(0).verdict, reads);
  EXPECT_EQ(one.loaders.at(0).version, "transformers 5.24.0");
  EXPECT_EQ(one.loaders.at(0).tensors.at("tied"), std::vector<std::string>{"lm_head.weight"});
  bed_.edit([](LoadedFolder& f) { f.set_scalar(kQ + ".weight_global_scale", -1); });
  EXPECT_EQ(report("transformers").loaders.at(0).verdict, misreads);
  for (const char* wrong : {"{\"transformers\": 3}", "["}) {
    bed_.options.answers = wrong;
    EXPECT_THROW(report(), FormatError) << wrong;
  }
}

TEST_F(VerifyLoaders, UnknownAlgorithmsAreRefused) {
  for (const auto& [algorithm, known] : std::map<std::string, std::set<std::string>>{
           {"NVFP4", {"vllm", "sglang"}}, {"NVFP4_AWQ", {"sglang"}}, {"NVFP4_SVD", {}}}) {
    quantize("modelopt", Scheme::w4a4);
    bed_.edit([&](LoadedFolder& f) {
      f.quantization()["quant_algo"] = algorithm;
      f.hf_quant["quantization"]["quant_algo"] = algorithm;
    });
    for (const char* loader : {"vllm", "sglang"})
      EXPECT_EQ(codes_of(report(loader)).contains("quant-algo"), !known.contains(loader))
          << algorithm << loader;
  }
}

}  // namespace nvfp4::verify_loaders_test
