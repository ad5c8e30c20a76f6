#include "checkpoint/checkpoints.h"

namespace nvfp4::fused_layers_test {

/// Quantizes a model and returns the action of each tensor by its name.
std::map<std::string, std::string> actions_of(const fs::path& in, const fs::path& out) {
  std::map<std::string, std::string> actions;
  for (const TensorReport& t : quantize_checkpoint(in, out).tensors) actions[t.name] = t.action;
  return actions;
}

/// q_proj and v_proj could be quantized, but loaders make one module of them and k_proj.
TEST(FusedLayers, FusedPartnersOfAnExcludedWeightAreExcluded) {
  const TempDir dir;
  const std::string p = "model.layers.0.";
  write_model(dir / "in",
              {{random_tensor(p + "self_attn.q_proj.weight", {64, 64}),
                random_tensor(p + "self_attn.k_proj.weight", {24, 64}),
                random_tensor(p + "self_attn.v_proj.weight", {32, 64}),
                random_tensor(p + "self_attn.o_proj.weight", {64, 64})}},
              kLlamaConfig);
  QuantizeCheckpointOptions options = quantize_options(dir / "in", dir / "out");
  std::map<std::string, std::string> kept;
  for (const TensorReport& t : quantize_checkpoint(options).tensors)
    if (t.action == "kept") kept[t.name] = t.reason;
  EXPECT_EQ(kept[p + "self_attn.k_proj.weight"], "24 rows, not a multiple of 16");
  for (const char* name : {"self_attn.q_proj.weight", "self_attn.v_proj.weight"})
    EXPECT_NE(kept[p + name].find("k_proj, which has 24 rows"), std::string::npos)
        << kept[p + name];
  EXPECT_EQ(kept.size(), 3u);
  options.include = {"*.k_proj.weight"};
  options.output = dir / "included";
  for (const TensorReport& t : quantize_checkpoint(options).tensors)
    EXPECT_NE(t.action, "kept") << t.name;
}

/// Decoding them would lose what is there.
TEST(FusedLayers, FourBitWeightsOfTheInputStay) {
  const TempDir dir;
  const std::string p = "model.layers.0.self_attn.";
  write_model(
      dir / "in",
      {{random_tensor(p + "q_proj.weight", {64, 64}), random_tensor(p + "k_proj.weight", {24, 64}),
        random_tensor(p + "v_proj.weight", {32, 64})}},
      kLlamaConfig);
  quantize_checkpoint(dir / "in", dir / "mid", {"--include", "*.q_proj.weight", "*.v_proj.weight"});
  auto actions = actions_of(dir / "mid", dir / "out");
  EXPECT_EQ(actions[p + "q_proj.weight"], "moved");
  EXPECT_EQ(actions[p + "v_proj.weight"], "moved");
}

/// In any model, whatever they are; experts with their whole layer. Those of four bits are not.
TEST(RowsThatAreNoMultipleOf16, KeepAMatrix) {
  const TempDir dir;
  const std::string p = "model.layers.0.mlp.";
  std::vector<TestTensor> tensors = {random_tensor(p + "up_proj.weight", {8, 64}),
                                     random_tensor(p + "down_proj.weight", {48, 64}),
                                     random_tensor(p + "experts.0.w1.weight", {40, 64}),
                                     random_tensor(p + "experts.0.w2.weight", {64, 64})};
  append(tensors, mxfp4_matrix(p + "shared.up_proj", 40, 64, 118, 124));
  write_model(dir / "in", {tensors}, kLlamaConfig);
  auto actions = actions_of(dir / "in", dir / "out");
  EXPECT_EQ(actions[p + "up_proj.weight"], "kept");
  EXPECT_EQ(actions[p + "down_proj.weight"], "quantized");
  EXPECT_EQ(actions[p + "experts.0.w1.weight"], "kept");
  EXPECT_EQ(actions[p + "experts.0.w2.weight"], "kept");
  EXPECT_EQ(actions[p + "shared.up_proj.weight"], "converted");
}

}  // namespace nvfp4::fused_layers_test
