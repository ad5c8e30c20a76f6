// Models in FP32: what is not quantized becomes BF16, but for what loaders keep.
#include "checkpoint/checkpoints.h"
#include "checkpoint/families/select.h"

namespace nvfp4::narrow_test {

using enum safetensors::DType;

std::vector<TestTensor> model_of(safetensors::DType dtype) {
  std::vector<TestTensor> tensors;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight",
                           "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate.weight"})
    tensors.push_back(random_tensor(name, {64, 64}, dtype));
  for (const char* name : {"model.norm.weight", "model.layers.0.mixer.A_log",
                           "model.layers.0.mlp.gate.e_score_correction_bias",
                           "model.layers.0.mlp.gate.bias", "model.layers.0.mlp.up_proj.bias"})
    tensors.push_back(random_tensor(name, {64}, dtype));
  return tensors;
}

Json config_of(const std::filesystem::path& folder) {
  return Json::parse(read_text(folder / "config.json"));
}

std::size_t actions(const QuantizeReport& report, std::string_view action) {
  return static_cast<std::size_t>(
      std::ranges::count(report.tensors, action, &TensorReport::action));
}

TEST(NarrowF32, RestOfAnFp32ModelBecomesBf16) {
  for (const char* format : {"modelopt", "compressed-tensors"}) {
    const TempDir dir;
    write_model(dir / "a", {model_of(f32)},
                R"({"model_type": "llama", "torch_dtype": "float32", "hidden_size": 64})");
    const QuantizeReport report = quantize_checkpoint(dir / "a", dir / "b", {"--format", format});
    EXPECT_EQ(actions(report, "quantized"), 1u);
    EXPECT_EQ(actions(report, "cast"), 5u);
    EXPECT_EQ(actions(report, "kept"), 3u);
    const LoadedModel a(dir / "a"), b(dir / "b");
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
                             "model.layers.0.mlp.gate.weight", "model.layers.0.mlp.up_proj.bias"}) {
      EXPECT_EQ(b.at(name).dtype, bf16) << name;
      EXPECT_EQ(b.at(name).shape, a.at(name).shape) << name;
      std::vector<float> values(a.at(name).bytes.size() / 4);
      std::memcpy(values.data(), a.at(name).bytes.data(), a.at(name).bytes.size());
      EXPECT_EQ(b.at(name).bytes, encode(values, bf16)) << name;
    }
    for (const char* name :
         {"model.layers.0.mixer.A_log", "model.layers.0.mlp.gate.e_score_correction_bias",
          "model.layers.0.mlp.gate.bias"})
      EXPECT_EQ(b.at(name).bytes, a.at(name).bytes) << name;
    EXPECT_EQ(config_of(dir / "b")["torch_dtype"], "bfloat16");
    for (const Finding& f : verify_checkpoint(verify_options(dir / "b", dir / "a")).findings)
      EXPECT_NE(f.severity, Severity::error) << f.text;
  }
}

TEST(NarrowF32, KeepDtypeLeavesAllAsItWas) {
  const TempDir dir;
  write_model(dir / "a", {model_of(f32)}, R"({"torch_dtype": "float32", "hidden_size": 64})");
  auto options = quantize_options(dir / "a", dir / "b", {"--keep-dtype"});
  const QuantizeReport report = quantize_checkpoint(options);
  EXPECT_EQ(actions(report, "kept"), 8u);
  EXPECT_EQ(LoadedModel(dir / "b").at("model.norm.weight").dtype, f32);
  EXPECT_EQ(config_of(dir / "b")["torch_dtype"], "float32");
  options.keep_dtype = false;
  options.resume = true;
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"resume"});
}

TEST(NarrowF32, Bf16ModelKeepsItsFp32Tensors) {
  const TempDir dir;
  std::vector<TestTensor> tensors = model_of(bf16);
  tensors.push_back(random_tensor("model.layers.1.norm.weight", {64}, f32));
  write_model(dir / "a", {tensors}, R"({"torch_dtype": "bfloat16", "hidden_size": 64})");
  EXPECT_EQ(actions(quantize_checkpoint(dir / "a", dir / "b"), "cast"), 0u);
  EXPECT_EQ(LoadedModel(dir / "b").at("model.layers.1.norm.weight").dtype, f32);
}

TEST(NarrowF32, AConfigThatSaysNoDtypeGetsOne) {
  const TempDir dir;
  write_model(dir / "a", {model_of(f32)},
              R"({"model_type": "x", "text_config": {"dtype": "float32", "hidden_size": 64}})");
  quantize_checkpoint(dir / "a", dir / "b");
  EXPECT_EQ(config_of(dir / "b")["dtype"], "bfloat16");
  EXPECT_EQ(config_of(dir / "b")["text_config"]["dtype"], "bfloat16");
}

TEST(NarrowF32, WhatTransformersKeepsStaysInItsFamilyOnly) {
  using checkpoint::stays_f32;
  const std::vector<std::string> gpt_oss = {"gpt_oss"}, llama = {"llama"}, t5 = {"t5"};
  EXPECT_TRUE(stays_f32("model.layers.0.input_layernorm.weight", gpt_oss));
  EXPECT_FALSE(stays_f32("model.layers.0.input_layernorm.weight", llama));
  EXPECT_TRUE(stays_f32("encoder.block.0.layer.1.DenseReluDense.wo.weight", t5));
  EXPECT_FALSE(stays_f32("encoder.block.0.layer.1.DenseReluDense.wo_1.weight", t5));
  EXPECT_TRUE(stays_f32("model.layers.0.mlp.router.bias", llama));
  EXPECT_FALSE(stays_f32("model.layers.0.mlp.gate.weight", llama));
  EXPECT_TRUE(stays_f32("backbone.layers.0.mixer.D", llama));
  EXPECT_TRUE(stays_f32("model.layers.0.mlp.gate.balancing_biases", llama));
  EXPECT_FALSE(stays_f32("model.norm.weight", {}));
}

/// Transformers' names, and those of checkpoints.
TEST(NarrowF32, NamesOfCheckpointsStayToo) {
  using checkpoint::stays_f32;
  struct Case {
    const char *type, *tensor;
  };
  constexpr Case kCases[] = {
      {"deepseek_v4", "model.layers.0.attn_hc.base"},
      {"deepseek_v4", "layers.0.hc_attn_base"},
      {"deepseek_v4", "layers.0.hc_ffn_scale"},
      {"deepseek_v4", "hc_head_fn"},
      {"deepseek_v4", "layers.0.attn_norm.weight"},
      {"deepseek_v4", "layers.0.attn.attn_sink"},
      {"deepseek_v4", "layers.0.attn.compressor.ape"},
      {"deepseek_v4", "layers.0.attn.compressor.wgate.weight"},
      {"deepseek_v4", "layers.0.attn.indexer.compressor.wkv.weight"},
      {"deepseek_v4", "layers.0.attn.indexer.weights_proj.weight"},
      {"deepseek_v4", "layers.0.attn.q_norm.weight"},
      {"inkling2", "model.llm.attn_res.mlp_queries.3"},
      {"inkling2", "model.llm.layers.0.attn_sconv.weight"},
      {"inkling2_loop", "model.llm.layers.0.controllers.k.gain_weight"},
      {"inkling2_loop", "model.llm.layers.0.controllers.mlp.forget_weight"},
      {"hunyuan_v1_moe", "model.layers.0.mlp.gate.wg.weight"},
      {"sarvam_mla", "model.layers.1.mlp.gate.weight"},
      {"sarvam_moe", "model.layers.1.mlp.gate.weight"},
      {"inkling2_loop_text", "model.llm.layers.0.attn.v_sconv.weight"},
      {"hy_v4", "model.hc_pre.hc_head.hc_head_base"},
      {"hy_v4", "model.layers.0.self_attn.learnable_sink_param"},
      {"hy_v4_vl", "model.layers.0.mlp.gate.weight"},
      {"nemotron_h", "backbone.layers.1.mixer.gate.weight"},
      {"glm5_next", "model.language_model.layers.0.hc_attn_scale"},
      {"glm5_next", "model.language_model.layers.0.self_attn.q_conv1d.weight"},
      {"deepseek_v3", "model.layers.3.mlp.gate.weight"},
      {"flint", "model.layers.0.self_attn.softmax_offset"},
      {"muse_spark", "model.language_model.layers.0.post_attention_residual_gate.gate"},
  };
  const std::vector<std::string> other = {"llama"};
  for (const Case& c : kCases) {
    const std::vector<std::string> types = {c.type};
    EXPECT_TRUE(stays_f32(c.tensor, types)) << c.type << " " << c.tensor;
    EXPECT_FALSE(stays_f32(c.tensor, other)) << c.tensor;
  }
  const std::vector<std::string> inkling2 = {"inkling2"}, deepseek_v4 = {"deepseek_v4"};
  EXPECT_FALSE(stays_f32("model.llm.layers.0.attn.k_sconv.weight_proj", inkling2));
  EXPECT_FALSE(stays_f32("layers.0.attn.wq_a.weight", deepseek_v4));
}

TEST(ModelConfig, TextBehindTheConfigIsRefused) {
  const TempDir dir;
  const std::string config = R"({"model_type": "llama", "hidden_size": 64})";
  write_model(dir / "a", {model_of(bf16)}, config);
  quantize_checkpoint(dir / "a", dir / "b");
  const std::string quantized = read_text(dir / "b" / "config.json");
  for (const std::string& rest : {std::string("{}"), std::string("\0 {\"a\": 1}", 10)}) {
    write_text(dir / "a" / "config.json", config + rest);
    expect_error<FormatError>([&] { quantize_checkpoint(dir / "a", dir / "c"); }, {"config.json"});
    write_text(dir / "b" / "config.json", quantized + rest);
    expect_error<FormatError>([&] { convert(dir / "b", dir / "c", "bf16"); }, {"config.json"});
  }
}

}  // namespace nvfp4::narrow_test
