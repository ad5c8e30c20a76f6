#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/gguf_models.h"

/// Files of other programs, which keep no config.json.
namespace nvfp4::gguf {

/// A file whose tensors are zeros.
struct ForeignFile {
  std::string architecture;
  std::map<std::string, NewValue> keys;
  std::vector<TensorSpec> tensors;

  void add(const std::string& name, std::vector<std::int64_t> shape) {
    tensors.push_back({name, find_type(kF32), std::move(shape)});
  }
  void write(const std::filesystem::path& path, const std::vector<float>& rope_freqs = {}) const {
    std::vector<NewEntry> entries = {{"general.architecture", new_text(architecture)}};
    for (const auto& [key, value] : keys) entries.push_back({architecture + "." + key, value});
    std::vector<TensorSpec> specs = tensors;
    if (!rope_freqs.empty())
      specs.push_back(
          {"rope_freqs.weight", find_type(kF32), {static_cast<std::int64_t>(rope_freqs.size())}});
    Writer writer(path, entries, specs);
    const std::vector<std::byte> zeros(1 << 16);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      writer.write(i, 0, std::span(zeros).first(*tensor_bytes(*specs[i].type, specs[i].shape)));
    if (!rope_freqs.empty()) writer.write(tensors.size(), 0, std::as_bytes(std::span(rope_freqs)));
    writer.commit();
  }
};

/// Two layers, four heads of 16.
ForeignFile dense_file(const std::string& architecture) {
  ForeignFile file{architecture,
                   {{"block_count", new_u32(2)},
                    {"context_length", new_u32(4096)},
                    {"embedding_length", new_u32(64)},
                    {"feed_forward_length", new_u32(128)},
                    {"attention.head_count", new_u32(4)},
                    {"attention.layer_norm_rms_epsilon", new_f32(1e-5)}},
                   {}};
  file.add("token_embd.weight", {96, 64});
  for (const char* layer : {"blk.0.", "blk.1."})
    for (const char* module : {"attn_q", "attn_k", "attn_v", "attn_output"})
      file.add(std::string(layer) + module + ".weight", {64, 64});
  return file;
}

ForeignFile with_experts(const std::string& architecture) {
  ForeignFile file = dense_file(architecture);
  file.keys["expert_count"] = new_u32(4);
  file.keys["expert_used_count"] = new_u32(2);
  return file;
}

/// DeepSeek's attention, in the form with attn_kv_b.
ForeignFile latent_file() {
  ForeignFile file = with_experts("deepseek2");
  file.tensors.resize(1);
  for (const auto& [key, value] : {std::pair{"attention.kv_lora_rank", 32},
                                   {"attention.key_length", 24},
                                   {"attention.value_length", 16},
                                   {"rope.dimension_count", 8},
                                   {"expert_feed_forward_length", 48}})
    file.keys[key] = new_u32(static_cast<std::uint64_t>(value));
  return file;
}

class GgufForeign : public ::testing::Test {
 protected:
  Json config_of(const ForeignFile& file, const std::vector<float>& rope_freqs = {}) {
    file.write(dir_ / "m.gguf", rope_freqs);
    std::filesystem::remove_all(dir_ / "out");
    convert(dir_ / "m.gguf", dir_ / "out", "bf16");
    return Json::parse(read_text(dir_ / "out" / "config.json"));
  }
  void refused(const ForeignFile& file, std::initializer_list<std::string_view> parts,
               const std::vector<float>& rope_freqs = {}) {
    file.write(dir_ / "m.gguf", rope_freqs);
    std::filesystem::remove_all(dir_ / "out");
    expect_error<UnsupportedError>([&] { convert(dir_ / "m.gguf", dir_ / "out", "bf16"); }, parts);
    EXPECT_FALSE(std::filesystem::exists(dir_ / "out"));
  }
  TempDir dir_;
};

TEST_F(GgufForeign, AbsentKeysGetLlamaCppDefaults) {
  const Json config = config_of(dense_file("qwen3"));
  EXPECT_EQ(config["num_key_value_heads"], 4);
  EXPECT_EQ(config["head_dim"], 16);
  EXPECT_EQ(config["rope_theta"], 10000.0);
  EXPECT_EQ(config["vocab_size"], 96);
  EXPECT_EQ(config["rms_norm_eps"].dump(), "1e-05");
}

TEST_F(GgufForeign, ExpertWeightsAreNormalizedAsInLlamaCpp) {
  EXPECT_EQ(config_of(with_experts("qwen3moe"))["norm_topk_prob"], true);
  EXPECT_EQ(config_of(with_experts("qwen2moe"))["norm_topk_prob"], false);
  ForeignFile file = with_experts("qwen3moe");
  file.keys["expert_weights_norm"] = new_bool(false);
  refused(file, {"m.gguf", "'qwen3moe.expert_weights_norm' = false, must be true in qwen3_moe"});
  file = with_experts("qwen2moe");
  file.keys["expert_weights_scale"] = new_f32(2.5);
  refused(file, {"'qwen2moe.expert_weights_scale' = 2.5, must be 1.0 or 0.0"});
  file = with_experts("llama");
  file.keys["expert_gating_func"] = new_u32(2);
  refused(file, {"'llama.expert_gating_func' = 2, must be 1 in mixtral models"});
}

TEST_F(GgufForeign, RotaryScalingIsKept) {
  ForeignFile file = dense_file("qwen2");
  for (const char* layer : {"blk.0.", "blk.1."})
    for (const char* module : {"attn_q", "attn_k", "attn_v"})
      file.add(std::string(layer) + module + ".bias", {64});
  file.keys["rope.scaling.type"] = new_text("linear");
  file.keys["rope.scaling.factor"] = new_f32(4);
  EXPECT_EQ(config_of(file)["rope_scaling"], Json({{"rope_type", "linear"}, {"factor", 4.0}}));
  file.keys["rope.scaling.type"] = new_text("yarn");
  file.keys["rope.scaling.original_context_length"] = new_u32(1024);
  file.keys["rope.scaling.yarn_attn_factor"] = new_f32(1.25);
  file.keys["rope.scaling.yarn_beta_fast"] = new_f32(24);
  file.keys["rope.scaling.yarn_ext_factor"] = new_f32(1);
  EXPECT_EQ(config_of(file)["rope_scaling"], Json({{"rope_type", "yarn"},
                                                   {"factor", 4.0},
                                                   {"original_max_position_embeddings", 1024},
                                                   {"attention_factor", 1.25},
                                                   {"beta_fast", 24.0}}));
  file.keys["rope.scaling.yarn_ext_factor"] = new_f32(0.5);
  refused(file, {"'qwen2.rope.scaling.yarn_ext_factor' = 0.5, must be 1.0 or -1.0"});
  file.keys.erase("rope.scaling.yarn_ext_factor");
  file.keys["rope.scaling.type"] = new_text("longrope");
  refused(file, {"'qwen2.rope.scaling.yarn_attn_factor' = 1.25"});
  file.keys.erase("rope.scaling.yarn_attn_factor");
  refused(file, {"'qwen2.rope.scaling.type' = \"longrope\", must be none, linear or yarn"});
}

/// The factors of head_dim 128, theta 500000, factor 8 and an original length of 8192.
TEST_F(GgufForeign, RopeFreqsBecomeLlama3Scaling) {
  ForeignFile file = dense_file("llama");
  file.keys["attention.key_length"] = file.keys["rope.dimension_count"] = new_u32(128);
  file.keys["rope.freq_base"] = new_f32(500000);
  const Json expected = {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}};
  std::vector<float> factors;
  for (int i = 0; i < 64; ++i) {
    const double wavelength = 2 * 3.14159265358979 * std::pow(500000.0, i / 64.0);
    const double smooth = (8192 / wavelength - 1) / 3;
    factors.push_back(static_cast<float>(smooth >= 1   ? 1
                                         : smooth <= 0 ? 8
                                                       : 1 / ((1 - smooth) / 8 + smooth)));
  }
  EXPECT_EQ(config_of(file, factors)["rope_scaling"], expected);
  EXPECT_FALSE(config_of(file, std::vector<float>(64, 1.0f)).contains("rope_scaling"));
  factors[40] += 1;
  refused(file, {"'rope_freqs.weight': 64 factors up to", "Llama 3's rule"}, factors);
  refused(file, {"'rope_freqs.weight': 2 factors"}, {1, 8});
}

TEST_F(GgufForeign, AttentionBiasesAreDeclared) {
  for (const char* name : {"llama", "qwen3"}) {
    ForeignFile file = dense_file(name);
    EXPECT_EQ(config_of(file)["attention_bias"], false);
    for (const char* module : {"attn_q", "attn_k", "attn_v", "attn_output"})
      file.add(std::string("blk.0.") + module + ".bias", {64});
    refused(file, {"biases of attn_q, attn_k, attn_v, attn_output", "in each layer, or none"});
    for (const char* module : {"attn_q", "attn_k", "attn_v", "attn_output"})
      file.add(std::string("blk.1.") + module + ".bias", {64});
    EXPECT_EQ(config_of(file)["attention_bias"], true);
  }
  EXPECT_EQ(config_of(with_experts("qwen2moe"))["qkv_bias"], false);
  refused(dense_file("qwen2"), {"qwen2 models have all of them in each layer;"});
  ForeignFile file = with_experts("llama");
  file.add("blk.0.attn_q.bias", {64});
  refused(file, {"'blk.0.attn_q.bias': mixtral models have no such bias"});
}

TEST_F(GgufForeign, DeepSeekKeysAreRead) {
  ForeignFile file = latent_file();
  file.keys["leading_dense_block_count"] = new_u32(1);
  file.keys["expert_shared_count"] = new_u32(2);
  file.keys["expert_weights_scale"] = new_f32(16);
  Json config = config_of(file);
  Json expected = {{"model_type", "deepseek_v2"},
                   {"kv_lora_rank", 32},
                   {"q_lora_rank", nullptr},
                   {"qk_nope_head_dim", 16},
                   {"qk_rope_head_dim", 8},
                   {"v_head_dim", 16},
                   {"num_key_value_heads", 4},
                   {"first_k_dense_replace", 1},
                   {"n_shared_experts", 2},
                   {"n_routed_experts", 4},
                   {"moe_intermediate_size", 48},
                   {"routed_scaling_factor", 16.0},
                   {"n_group", 1},
                   {"topk_group", 1},
                   {"topk_method", "greedy"},
                   {"norm_topk_prob", false}};
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(config[key], value) << key;
  file.keys["expert_gating_func"] = file.keys["expert_group_used_count"] = new_u32(2);
  file.keys["expert_group_count"] = new_u32(4);
  file.keys["expert_weights_norm"] = new_bool(true);
  file.keys["attention.q_lora_rank"] = new_u32(24);
  file.keys["rope.scaling.type"] = new_text("yarn");
  file.keys["rope.scaling.factor"] = new_f32(40);
  file.keys["rope.scaling.yarn_log_multiplier"] = new_f32(0.1);
  config = config_of(file);
  expected = {{"model_type", "deepseek_v3"},
              {"q_lora_rank", 24},
              {"n_group", 4},
              {"topk_group", 2},
              {"scoring_func", "sigmoid"},
              {"topk_method", "noaux_tc"},
              {"norm_topk_prob", true}};
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(config[key], value) << key;
  EXPECT_EQ(config["rope_scaling"]["mscale"], 1.0);
  EXPECT_EQ(config["rope_scaling"]["mscale_all_dim"], 1.0);
  file.keys["attention.head_count_kv"] = new_u32(1);
  refused(file, {"'deepseek2.attention.head_count_kv' = 1, must be 4"});
}

TEST_F(GgufForeign, KeysWithoutPlaceAreNamed) {
  ForeignFile file = dense_file("llama");
  file.keys["attention.scale"] = new_f32(0.25);
  refused(file, {"'llama.attention.scale' = 0.25: config.json of llama models has no place for it",
                 "take the original model instead"});
  file = dense_file("llama");
  file.keys["rope.dimension_count"] = new_u32(8);
  refused(file, {"'llama.rope.dimension_count' = 8, must be 16"});
  file = dense_file("llama");
  file.keys["feed_forward_length"] = new_i32s({128, 64});
  refused(file, {"'llama.feed_forward_length' = \"an array\", must be a number"});
  file.keys["feed_forward_length"] = {.type = ValueType::u64, .value = std::uint64_t{1} << 63};
  refused(file, {"'llama.feed_forward_length' = 9223372036854775808, must be a number of 32 bits"});
  file.keys.erase("feed_forward_length");
  refused(file, {"has no key 'llama.feed_forward_length'"});
}

/// From one GGUF file to another the keys themselves are copied.
TEST_F(GgufForeign, KeysWithoutPlaceStayInGguf) {
  ForeignFile file = dense_file("llama");
  file.keys["attention.scale"] = new_f32(0.25);
  file.write(dir_ / "m.gguf");
  QuantizeCheckpointOptions options = quantize_options(dir_ / "m.gguf", dir_ / "n.gguf");
  options.format = "gguf";
  quantize_checkpoint(options);
  EXPECT_NE(File::open(dir_ / "n.gguf").header().find("llama.attention.scale"), nullptr);
}

TEST(GgufOfAnotherProgram, BecomesTheModelAgain) {
  const TempDir dir;
  Json source = llama_config();
  source["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", 4.0},
                            {"original_max_position_embeddings", 512},
                            {"beta_fast", 24.0}};
  write_llama(dir / "source", source);
  quantize_checkpoint(quantize_options(dir / "source", dir / "a"));
  convert(dir / "a", dir / "m.gguf", "gguf");
  // The file as another program would write it: without our keys, without scales that are 1.
  const File m = File::open(dir / "m.gguf");
  std::vector<NewEntry> entries;
  for (const Entry& e : m.header().entries) {
    if (e.key.starts_with("nvfp4.")) continue;
    entries.push_back({e.key, {.type = e.value.type, .value = e.value.value}});
  }
  std::vector<TensorSpec> specs;
  std::vector<std::string> stored;
  for (const TensorInfo& t : m.header().tensors) {
    if (t.name.ends_with(".input_scale")) continue;
    stored.push_back(t.name);
    std::string name = t.name;
    // Some converters use this name.
    if (name.ends_with("attn_q.scale")) name.insert(name.rfind('.'), ".weight");
    specs.push_back({name, t.type, t.shape});
  }
  Writer writer(dir / "foreign.gguf", entries, specs);
  for (std::size_t i = 0; i < specs.size(); ++i) writer.write(i, 0, bytes_of(m, stored[i]));
  writer.commit();
  const QuantizeReport report = convert(dir / "foreign.gguf", dir / "b", "modelopt");
  EXPECT_TRUE(says(report.warnings, "config.json is made of the file's keys"));
  const Json config = Json::parse(read_text(dir / "b" / "config.json"));
  for (const auto& [key, value] : source.items()) EXPECT_EQ(config.at(key), value) << key;
  const LoadedModel a(dir / "a"), b(dir / "b");
  for (const auto& [name, tensor] : a.tensors) {
    if (name.ends_with(".input_scale")) continue;
    ASSERT_TRUE(b.has(name)) << name;
    const bool norm = name.find("norm") != name.npos;
    EXPECT_EQ(b.at(name).dtype, norm ? safetensors::DType::f32 : tensor.dtype) << name;
    if (!norm) {
      EXPECT_EQ(b.at(name).bytes, tensor.bytes) << name;
    }
  }
  EXPECT_EQ(config.at("quantization_config").at("quant_algo"), "W4A16_NVFP4");
}

}  // namespace nvfp4::gguf
