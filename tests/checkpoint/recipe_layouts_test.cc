// Recipes make what publishers have made of the same models: names, types, shapes, configuration.
// Those of ModelOpt's own export of tiny models are in python/test_modelopt_layout.py, that of
// DeepSeek-V4 is in convert_forms_test.cc.
#include "checkpoint/checkpoints.h"
#include "checkpoint/match/glob.h"

namespace nvfp4::recipe_layouts_test {

using enum safetensors::DType;
using Shape = std::vector<std::int64_t>;

/// A dense layer, one of two experts, one of multi-token prediction; linear layers in FP8 blocks.
void write_deepseek_r1(const std::filesystem::path& folder) {
  std::vector<std::vector<TestTensor>> shards(3);
  for (const int layer : {0, 1, 2}) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    auto& shard = shards[static_cast<std::size_t>(layer)];
    for (const char* q : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"})
      append(shard, fp8_blocks(p + "self_attn." + q, 128, 128));
    std::vector<std::string> mlps = {"mlp."};
    if (layer > 0) mlps = {"mlp.shared_experts.", "mlp.experts.0.", "mlp.experts.1."};
    for (const std::string& mlp : mlps)
      for (const char* name : {"gate_proj", "up_proj", "down_proj"})
        append(shard, fp8_blocks(p + mlp + name, 128, 128));
    if (layer > 0) {
      shard.push_back(random_tensor(p + "mlp.gate.weight", {2, 128}));
      shard.push_back(random_tensor(p + "mlp.gate.e_score_correction_bias", {2}, f32));
    }
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      shard.push_back(random_tensor(p + norm + ".weight", {128}));
  }
  append(shards[2], fp8_blocks("model.layers.2.eh_proj", 128, 256));
  shards[0].push_back(random_tensor("model.embed_tokens.weight", {64, 128}));
  shards[2].push_back(random_tensor("lm_head.weight", {64, 128}));
  write_model(folder, shards,
              R"({"model_type": "deepseek_v3", "hidden_size": 128, "num_hidden_layers": 2,
                  "num_nextn_predict_layers": 1, "quantization_config": {"quant_method": "fp8",
                  "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}})");
}

bool is_mlp_weight(const std::string& name) {
  return name.find(".mlp.") != name.npos && name.ends_with("_proj.weight") &&
         !name.starts_with("model.layers.2.");
}

/// Experts, shared experts and the dense MLP in NVFP4; attention, head, router and the layer of
/// multi-token prediction plain; keys and values cached in BF16.
TEST(RecipeLayouts, MlpIsThatOfDeepSeekR1) {
  const TempDir dir;
  write_deepseek_r1(dir / "in");
  const QuantizeReport report = quantize_checkpoint(dir / "in", dir / "out", {"--recipe", "mlp"});
  const LoadedModel in(dir / "in"), out(dir / "out");
  std::size_t expected = 0;
  for (const auto& [name, t] : in.tensors) {
    if (name.ends_with("_scale_inv")) continue;
    const std::string module = name.substr(0, name.rfind('.'));
    if (!is_mlp_weight(name)) {
      ++expected;
      EXPECT_EQ(out.at(name).dtype, t.dtype == f8_e4m3 ? bf16 : t.dtype) << name;
      EXPECT_EQ(out.at(name).shape, t.shape) << name;
      continue;
    }
    expected += 4;
    EXPECT_EQ(out.at(name).dtype, u8) << name;
    EXPECT_EQ(out.at(name).shape, (Shape{t.shape[0], t.shape[1] / 2})) << name;
    EXPECT_EQ(out.at(module + ".weight_scale").dtype, f8_e4m3);
    EXPECT_EQ(out.at(module + ".weight_scale").shape, (Shape{t.shape[0], t.shape[1] / 16}));
    for (const char* scalar : {".weight_scale_2", ".input_scale"}) {
      EXPECT_EQ(out.at(module + scalar).dtype, f32);
      EXPECT_EQ(out.at(module + scalar).shape, Shape{});
    }
  }
  EXPECT_EQ(out.tensors.size(), expected) << "and nothing else";
  LoadedFolder folder(dir / "out");
  EXPECT_EQ(folder.hf_quant["producer"]["name"], "modelopt");
  const auto& side = folder.hf_quant["quantization"];
  EXPECT_EQ(side["quant_algo"], "NVFP4");
  EXPECT_EQ(side["group_size"], 16);
  EXPECT_TRUE(side["kv_cache_quant_algo"].is_null());
  const auto& config = folder.quantization();
  EXPECT_EQ(config["quant_method"], "modelopt");
  EXPECT_EQ(config["quant_algo"], "NVFP4");
  EXPECT_FALSE(config.contains("weight_block_size")) << "of FP8, which is gone";
  checkpoint::MatchBudget budget;
  for (const auto& list : {side["exclude_modules"], config["ignore"]})
    for (const auto& [name, t] : in.tensors) {
      if (!name.ends_with(".weight") || t.shape.size() != 2 || name.find("embed") != name.npos)
        continue;
      const std::string module = name.substr(0, name.rfind('.'));
      const bool excluded = std::ranges::any_of(list, [&](const auto& entry) {
        return checkpoint::Glob(entry.template get<std::string>()).matches(module, budget);
      });
      EXPECT_EQ(excluded, !is_mlp_weight(name)) << name;
    }
  auto verify = verify_options(dir / "out", dir / "in");
  for (const char* loader : {"vllm", "sglang", "tensorrt-llm"}) {
    verify.loader = loader;
    EXPECT_FALSE(verify_checkpoint(verify).broken()) << loader;
  }
}

}  // namespace nvfp4::recipe_layouts_test
