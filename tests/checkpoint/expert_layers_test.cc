#include "checkpoint/checkpoints.h"
#include "checkpoint/families/experts.h"

namespace nvfp4::checkpoint::expert_layers_test {

using Names = std::vector<std::string>;

/// Two layers of two experts; `odd_depth` is that of one down projection.
void write_moe(const std::filesystem::path& folder, std::int64_t odd_depth) {
  std::vector<TestTensor> tensors;
  for (const std::string layer : {"l.0.mlp.experts.", "l.1.mlp.experts."})
    for (const std::string expert : {"0.", "1."}) {
      const std::string p = layer + expert;
      const bool odd = p == "l.1.mlp.experts.1.";
      tensors.push_back(random_tensor(p + "gate_proj.weight", {32, 64}));
      tensors.push_back(random_tensor(p + "up_proj.weight", {32, 64}));
      tensors.push_back(random_tensor(p + "down_proj.weight", {64, odd ? odd_depth : 32}));
    }
  write_model(folder, {tensors}, "{}");
}

std::size_t quantized_of(const QuantizeReport& report, const std::string& prefix) {
  std::size_t n = 0;
  for (const TensorReport& t : report.tensors)
    n += t.name.starts_with(prefix) && t.action == "quantized";
  return n;
}

struct ExpertLayers : FolderTest {};

TEST_F(ExpertLayers, Names) {
  EXPECT_EQ(expert_layer_of("a.experts.7.w1"), "a.experts");
  EXPECT_EQ(expert_layer_of("experts.7.w1"), "experts");
  EXPECT_EQ(expert_layer_of("a.experts.gate_up_proj"), "a.experts");
  EXPECT_EQ(expert_layer_of("a.shared_experts.up_proj"), "");
  EXPECT_EQ(without_expert_number("a.experts.17.w1"), "a.experts.*.w1");
  EXPECT_EQ(without_expert_number("a.experts.down_proj"), "a.experts.down_proj");
  EXPECT_EQ(without_expert_number("a.q_proj"), "a.q_proj");
}

TEST_F(ExpertLayers, UnquantizableWeightExcludesItsLayer) {
  write_moe(dir / "in", 40);
  const QuantizeReport report = quantize_checkpoint(dir / "in", dir / "out");
  EXPECT_EQ(quantized_of(report, "l.0."), 6u);
  EXPECT_EQ(quantized_of(report, "l.1."), 0u);
  EXPECT_TRUE(report.warnings.empty()) << report.warnings[0];
  for (const TensorReport& t : report.tensors) {
    if (t.name == "l.1.mlp.experts.0.up_proj.weight") {
      EXPECT_THAT(t.reason, HasSubstr("1.down_proj of this one: 40 columns"));
    }
  }
  const auto config = nlohmann::json::parse(read_text(dir / "out" / "config.json"));
  EXPECT_EQ(config["quantization_config"]["ignore"],
            nlohmann::json::parse(R"(["lm_head", "*l.1.*"])"));
}

TEST_F(ExpertLayers, StackedOnesAreKeptTogetherToo) {
  write_model(dir / "in",
              {{random_tensor("l.mlp.experts.gate_up_proj", {2, 64, 80})},
               {random_tensor("l.mlp.experts.down_proj", {2, 40, 64}),
                random_tensor("m.q_proj.weight", {64, 64})}},
              R"({"model_type": "llama4", "hidden_size": 64})");
  EXPECT_EQ(quantized_of(quantize_checkpoint(dir / "in", dir / "out"), "l."), 0u);
  EXPECT_TRUE(LoadedModel(dir / "out").has("l.mlp.experts.gate_up_proj"));
}

TEST_F(ExpertLayers, MixedPatternWarnsOnceForEachLayer) {
  write_moe(dir / "in", 32);
  auto options = quantize_options(dir / "in", dir / "out",
                                  {"--ignore", "l.0.mlp.experts.0.*", "l.1.*", "--dry-run"});
  const QuantizeReport report = quantize_checkpoint(options);
  EXPECT_EQ(report.warnings, Names{"l.0.mlp.experts: 3 of 6 tensors are quantized, loaders cannot "
                                   "load a partly quantized expert layer"});
  EXPECT_EQ(quantized_of(report, "l."), 3u);

  write_model(dir / "stacked",
              {{random_tensor("l.mlp.experts.gate_up_proj", {2, 64, 96}),
                random_tensor("l.mlp.experts.down_proj", {2, 48, 64})}},
              R"({"model_type": "llama4", "hidden_size": 64})");
  options.input = dir / "stacked";
  options.ignore = {"*.down_proj"};
  const auto warnings = quantize_checkpoint(options).warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(warnings[0].starts_with("l.mlp.experts: 1 of 2 tensors")) << warnings[0];
}

TEST_F(ExpertLayers, MissingInputAmaxIsTheLayersLargest) {
  write_moe(dir / "in", 32);
  auto options = quantize_options(dir / "in", dir / "out", {"--ignore", "l.1.mlp.experts.*"});
  write_text(dir / "amax.json", R"({"l.0.mlp.experts.1.up_proj": 5376})");
  options.input_amax = dir / "amax.json";
  const QuantizeReport report = quantize_checkpoint(options);
  const LoadedModel out(dir / "out");
  for (const char* name : {"0.gate_proj", "0.up_proj", "1.gate_proj", "1.up_proj"})
    EXPECT_EQ(out.scalar(std::string("l.0.mlp.experts.") + name + ".input_scale"), 2.0f) << name;
  EXPECT_EQ(out.scalar("l.0.mlp.experts.0.down_proj.input_scale"), 1.0f);
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_THAT(report.warnings[0], HasSubstr("2 of 6 modules"));
}

}  // namespace nvfp4::checkpoint::expert_layers_test
