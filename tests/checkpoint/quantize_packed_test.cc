#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/gguf_models.h"

/// `nvfp4 quantize` of models that hold NVFP4 weights already.
namespace nvfp4::quantize_packed_test {

using enum safetensors::DType;
using ::testing::AllOf, ::testing::Contains, ::testing::EndsWith, ::testing::StartsWith;

constexpr const char* kAttention = "*.self_attn.*";
constexpr const char* kRounded = "1 MXFP4 weights are rounded";

const std::string kQ = "model.layers.0.self_attn.q_proj", kK = "model.layers.0.self_attn.k_proj",
                  kV = "model.layers.0.self_attn.v_proj", kUp = "model.layers.1.mlp.up_proj";

/// A tiny llama in `dir`/plain, and in `output` with NVFP4 in its MLPs alone.
void write_half_quantized(const TempDir& dir, const fs::path& output,
                          Scheme scheme = Scheme::w4a4) {
  gguf::write_llama(dir / "plain");
  quantize_checkpoint(dir / "plain", output, {"--scheme", scheme, "--ignore", kAttention});
}

std::map<std::string, int> actions_of(const QuantizeReport& report) {
  std::map<std::string, int> actions;
  for (const TensorReport& t : report.tensors) ++actions[t.action];
  return actions;
}

bool warns(const QuantizeReport& report, std::string_view text) {
  return says(report.warnings, text);
}

/// Codes, scales, and global scales but for the last bit of a reciprocal; norms may be FP32.
void expect_same_weights(const fs::path& a, const fs::path& b) {
  const LoadedModel x(a), y(b);
  ASSERT_EQ(x.tensors.size(), y.tensors.size());
  for (const auto& [name, tensor] : x.tensors) {
    ASSERT_TRUE(y.has(name)) << name;
    const bool reciprocal = name.ends_with("weight_global_scale");
    if (reciprocal) {
      EXPECT_LE(std::fabs(y.scalar(name) / x.scalar(name) - 1), 0x1p-23f) << name;
    } else if (name.find("norm") == name.npos) {
      EXPECT_EQ(tensor.bytes, y.at(name).bytes) << name;
    }
  }
}

struct QuantizePacked : FolderTest {};

/// In two steps as in one: what is NVFP4 keeps its codes and scales, what is plain is quantized.
TEST_F(QuantizePacked, TwoStepsGiveTheBytesOfOne) {
  for (const std::string to : {"modelopt", "compressed-tensors", "comfyui"})
    for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16}) {
      const TempDir dir;
      write_half_quantized(dir, dir / "modelopt", scheme);
      auto options =
          quantize_options(dir / "plain", dir / "whole", {"--format", to, "--scheme", scheme});
      quantize_checkpoint(options);
      for (const std::string from : {"modelopt", "compressed-tensors", "comfyui", "model.gguf"}) {
        SCOPED_TRACE(fmt::format("{} to {}", from, to));
        if (from != "modelopt")
          convert(dir / "modelopt", dir / from, from == "model.gguf" ? "gguf" : from);
        options.input = dir / from;
        options.output = dir / "out";
        options.overwrite = true;
        const QuantizeReport report = quantize_checkpoint(options);
        auto actions = actions_of(report);
        EXPECT_EQ(actions["moved"], 6);
        EXPECT_EQ(actions["quantized"], 8);
        EXPECT_EQ(actions["kept"], 7);
        expect_same_weights(dir / "whole", dir / "out");
        EXPECT_EQ(findings_of(dir / "out"), "");
      }
    }
}

TEST_F(QuantizePacked, ToOneGgufFile) {
  write_half_quantized(dir, dir / "a");
  auto options = quantize_options(dir / "plain", dir / "whole.gguf", {"--format", "gguf"});
  quantize_checkpoint(options);
  options.input = dir / "a";
  options.output = dir / "out.gguf";
  quantize_checkpoint(options);
  EXPECT_EQ(compare_checkpoints(dir / "whole.gguf", dir / "out.gguf").tensors.size(), 0u);
}

TEST_F(QuantizePacked, NothingElseToQuantizeIsAWarning) {
  write_tiny_llama(dir / "plain");
  quantize_checkpoint(dir / "plain", dir / "a");
  const QuantizeReport report = quantize_checkpoint(dir / "a", dir / "b");
  EXPECT_TRUE(warns(report, "nothing was left to quantize"));
  expect_same_tensors(dir / "a", dir / "b");
  EXPECT_EQ(read_text(dir / "a" / "config.json"), read_text(dir / "b" / "config.json"));
}

TEST_F(QuantizePacked, IgnoredWeightsAreDequantizedOthersStay) {
  write_tiny_llama(dir / "plain");
  auto options = quantize_options(dir / "plain", dir / "a", {"--include", "lm_head"});
  quantize_checkpoint(options);
  options = quantize_options(dir / "a", dir / "b");
  options.ignore = {kUp};
  const QuantizeReport report = quantize_checkpoint(options);
  for (const TensorReport& t : report.tensors) {
    if (t.name == "lm_head.weight") {
      EXPECT_EQ(t.action, "moved") << "though it would not be quantized by default";
    }
    if (t.name == kUp + ".weight") {
      EXPECT_EQ(t.action, "dequantized");
      EXPECT_EQ(t.reason, "--ignore " + kUp);
    }
  }
  EXPECT_EQ(LoadedModel(dir / "b").at(kUp + ".weight").dtype, bf16);
  convert(dir / "a", dir / "dense", "bf16");
  EXPECT_EQ(LoadedModel(dir / "b").at(kUp + ".weight").bytes,
            LoadedModel(dir / "dense").at(kUp + ".weight").bytes);
}

TEST_F(QuantizePacked, InputScalesAreKeptSuppliedOrOmitted) {
  write_half_quantized(dir, dir / "w4a16", Scheme::w4a16);
  auto options = quantize_options(dir / "w4a16", dir / "default");
  EXPECT_TRUE(warns(quantize_checkpoint(options), "6 of 6 weights that are NVFP4"));
  EXPECT_EQ(LoadedModel(dir / "default").scalar(kUp + ".input_scale"), 1);

  write_text(dir / "amax.json", R"({"*.mlp.*": 5376, "*.self_attn.*": 1344})");
  options.output = dir / "given";
  options.input_amax = dir / "amax.json";
  EXPECT_FALSE(warns(quantize_checkpoint(options), "have no input scale"));
  EXPECT_EQ(LoadedModel(dir / "given").scalar(kUp + ".input_scale"), 2);
  EXPECT_EQ(LoadedModel(dir / "given").scalar(kQ + ".input_scale"), 0.5f);

  write_text(dir / "amax.json", R"({"*": 10752})");
  options.input = dir / "given";
  options.output = dir / "again";
  quantize_checkpoint(options);
  expect_same_tensors(dir / "given", dir / "again");

  options = quantize_options(dir / "given", dir / "without");
  options.scheme = Scheme::w4a16;
  EXPECT_FALSE(warns(quantize_checkpoint(options), "have no input scale"));
  EXPECT_FALSE(LoadedModel(dir / "without").has(kUp + ".input_scale"));
}

/// q_proj is NVFP4 with its own scales, k_proj and v_proj are plain, and loaders fuse the three.
struct FusedQkv {
  TempDir dir;
  TestTensor codes, scales;
  float global = 0, input = 0.125f, others = 0;  ///< others: amax of k_proj and v_proj
  bool rounded = false;                          ///< as the report says

  /// The global scale is `factor` times what q_proj itself needs.
  explicit FusedQkv(float factor) : FusedQkv([factor](float own, float) { return own * factor; }) {}
  /// Or is made of that and of what k_proj and v_proj need at least.
  explicit FusedQkv(const std::function<float(float own, float others)>& choose) {
    write_tiny_llama(dir / "plain");
    quantize_checkpoint(dir / "plain", dir / "q");
    LoadedFolder model(dir / "plain"), q(dir / "q");
    codes = q.at(kQ + ".weight");
    scales = q.at(kQ + ".weight_scale");
    const LoadedModel plain(dir / "plain");
    others = std::max(amax(plain.matrix(kK + ".weight")), amax(plain.matrix(kV + ".weight")));
    global = choose(q.scalar(kQ + ".weight_scale_2"),
                    GlobalScale::from_amax(others, Quantizer::max).multiplier);
    q.set_scalar(kQ + ".weight_scale_2", global);
    q.set_scalar(kQ + ".input_scale", input);
    auto& shard = model.shard_of(kQ + ".weight");
    model.remove(kQ + ".weight");
    for (const char* part : {".weight", ".weight_scale", ".weight_scale_2", ".input_scale"})
      shard.push_back(q.at(kQ + part));
    model.config["quantization_config"] = q.quantization();
    model.write(dir / "mixed");
  }
  LoadedModel quantize(const std::string& input_amax = "") {
    auto options = quantize_options(dir / "mixed", dir / "out", {"--overwrite"});
    if (!input_amax.empty()) {
      write_text(dir / "amax.json", input_amax);
      options.input_amax = dir / "amax.json";
    }
    const QuantizeReport report = quantize_checkpoint(options);
    rounded = warns(report, kQ + ".weight: its block scales were rounded");
    return LoadedModel(dir / "out");
  }
  /// k_proj and v_proj with this global scale, q_proj's codes, and one input scale.
  void expect_shared(const LoadedModel& out, float expected) {
    const LoadedModel plain(dir / "plain");
    const GlobalScale given{.multiplier = expected, .divisor = 1 / expected};
    for (const std::string& name : {kK, kV}) {
      const QuantizedMatrix q = nvfp4::quantize(
          plain.matrix(name + ".weight"), {.quantizer = Quantizer::mse, .global = {&given, 1}});
      const auto& bytes = out.at(name + ".weight").bytes;
      EXPECT_EQ(std::memcmp(bytes.data(), q.codes(), bytes.size()), 0) << name;
    }
    for (const std::string& name : {kQ, kK, kV}) {
      EXPECT_EQ(out.scalar(name + ".weight_scale_2"), expected) << name;
      EXPECT_EQ(out.scalar(name + ".input_scale"), input) << name;
    }
    EXPECT_EQ(out.at(kQ + ".weight").bytes, codes.bytes);
    EXPECT_EQ(findings_of(dir / "out"), "");
  }
};

TEST_F(QuantizePacked, PartnersTakeTheGlobalScaleThatIsThere) {
  FusedQkv model(8);
  const LoadedModel out = model.quantize();
  model.expect_shared(out, model.global);
  EXPECT_EQ(out.at(kQ + ".weight_scale").bytes, model.scales.bytes);
  EXPECT_FALSE(model.rounded);
}

/// One that `max` would choose is large enough, though `mse` would rather have another.
TEST_F(QuantizePacked, PartnersNeedOnlyTheRangeOfE4m3) {
  FusedQkv model([](float, float others) { return others; });
  const LoadedModel out = model.quantize();
  model.expect_shared(out, model.global);
  EXPECT_EQ(out.at(kQ + ".weight_scale").bytes, model.scales.bytes);
  EXPECT_FALSE(model.rounded);
}

TEST_F(QuantizePacked, PartnersTakeTheLargestInputScale) {
  FusedQkv model(8);
  LoadedModel out = model.quantize(R"({"*.v_proj": 10752, "*.q_proj": 26880})");
  for (const std::string& name : {kQ, kK, kV})
    EXPECT_EQ(out.scalar(name + ".input_scale"), 4) << name << ", q_proj has one and needs none";
  out = model.quantize(R"({"*.v_proj": 2.688})");
  for (const std::string& name : {kQ, kK, kV})
    EXPECT_EQ(out.scalar(name + ".input_scale"), model.input) << name;
}

TEST_F(QuantizePacked, PartnersGetTheLargerGlobalScale) {
  FusedQkv model(0.125f);
  const float expected = GlobalScale::from_amax(model.others, Quantizer::mse).multiplier;
  ASSERT_GT(expected, model.global) << "or else there is nothing to test";
  const LoadedModel out = model.quantize();
  model.expect_shared(out, expected);
  const auto& scales = out.at(kQ + ".weight_scale").bytes;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const auto value = [](std::byte b) {
      return E4M3{std::to_integer<std::uint8_t>(b)}.to_float();
    };
    const float exact = value(model.scales.bytes[i]) * (model.global / expected);
    EXPECT_EQ(scales[i], std::byte{E4M3::from_float(exact).bits});
  }
  EXPECT_TRUE(model.rounded);
}

/// A zero partner needs no scale at all, least of all 1.
TEST_F(QuantizePacked, ZeroPartnersNeedNoLargerScale) {
  FusedQkv model(8);
  LoadedFolder mixed(model.dir / "mixed");
  for (const std::string& name : {kK, kV})
    std::ranges::fill(mixed.at(name + ".weight").bytes, std::byte{0});
  fs::remove_all(model.dir / "mixed");
  mixed.write(model.dir / "mixed");
  const LoadedModel out = model.quantize();
  EXPECT_EQ(out.scalar(kV + ".weight_scale_2"), model.global);
  EXPECT_EQ(out.at(kQ + ".weight_scale").bytes, model.scales.bytes);
}

TEST_F(QuantizePacked, NewExpertsTakeTheOthersInputScale) {
  std::vector<TestTensor> tensors;
  for (const char* expert : {"0", "1"})
    for (const char* name : {"gate_proj", "up_proj", "down_proj"})
      tensors.push_back(random_tensor(
          fmt::format("model.layers.0.mlp.experts.{}.{}.weight", expert, name), {64, 64}));
  write_model(dir / "plain", {tensors}, kLlamaConfig);
  quantize_checkpoint(dir / "plain", dir / "q");
  LoadedFolder model(dir / "q");
  auto& shard = model.shards.begin()->second;
  std::erase_if(shard, [](const TestTensor& t) {
    return t.spec.name.find("experts.1.") != t.spec.name.npos;
  });
  for (const TestTensor& t : tensors)
    if (t.spec.name.find("experts.1.") != t.spec.name.npos) shard.push_back(t);
  const std::string first = "model.layers.0.mlp.experts.0.",
                    second = "model.layers.0.mlp.experts.1.";
  for (const char* name : {"gate_proj", "up_proj"})
    model.set_scalar(first + name + ".input_scale", 0.25f);
  model.set_scalar(first + "down_proj.input_scale", 0.5f);
  model.write(dir / "mixed");
  quantize_checkpoint(dir / "mixed", dir / "out");
  const LoadedModel out(dir / "out");
  EXPECT_EQ(out.scalar(second + "up_proj.input_scale"), 0.25f);
  EXPECT_EQ(out.scalar(second + "down_proj.input_scale"), 0.5f);
}

TEST_F(QuantizePacked, NothingInNvfp4IsDeclaredSo) {
  write_half_quantized(dir, dir / "a");
  EXPECT_TRUE(warns(quantize_checkpoint(dir / "a", dir / "b", {"--ignore", "*"}),
                    "no tensor is quantized"));
  EXPECT_FALSE(LoadedFolder(dir / "b").config.contains("quantization_config"));
  EXPECT_FALSE(fs::exists(dir / "b" / "hf_quant_config.json"));
}

TEST_F(QuantizePacked, KvCacheScalesAreDeclaredWhereverTheyWere) {
  write_half_quantized(dir, dir / "a");
  LoadedFolder model(dir / "a");
  model.config.erase("quantization_config");
  model.hf_quant["quantization"]["kv_cache_quant_algo"] = "FP8";
  model.write(dir / "b");
  quantize_checkpoint(dir / "b", dir / "c");
  LoadedFolder out(dir / "c");
  EXPECT_EQ(out.hf_quant["quantization"]["kv_cache_quant_algo"], "FP8");
  EXPECT_EQ(out.quantization()["kv_cache_scheme"]["num_bits"], 8);
  write_text(dir / "b" / "hf_quant_config.json", "{}");
  EXPECT_TRUE(warns(quantize_checkpoint(dir / "b", dir / "d"), "not read"));
}

TEST_F(QuantizePacked, InputScalesOfEightBitsAreRefused) {
  write_half_quantized(dir, dir / "a");
  LoadedFolder model(dir / "a");
  model.quantization()["quant_algo"] = "W4A8_NVFP4_FP8";
  model.write(dir / "b");
  auto options = quantize_options(dir / "b", dir / "c");
  expect_error<UnsupportedError>([&] { quantize_checkpoint(options); },
                                 {"W4A8_NVFP4_FP8", "--scheme w4a16"});
  options.scheme = Scheme::w4a16;
  quantize_checkpoint(options);
}

/// Its configuration can only say which experts are NVFP4.
TEST_F(QuantizePacked, DeepSeekV4KeepsItsExperts) {
  std::vector<TestTensor> tensors;
  for (const char* name : {"w1", "w2", "w3"})
    append(tensors, mxfp4_matrix(fmt::format("layers.0.ffn.experts.0.{}", name), 64, 64, 118, 124));
  append(tensors, fp8_blocks("layers.0.attn.wq_a", 128, 128));
  write_model(dir / "mx", {tensors}, R"({"model_type": "deepseek_v4", "quantization_config":
      {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}})");
  quantize_checkpoint(dir / "mx", dir / "a");
  auto options = quantize_options(dir / "a", dir / "b");
  quantize_checkpoint(options);
  expect_same_tensors(dir / "a", dir / "b");
  EXPECT_EQ(read_text(dir / "a" / "config.json"), read_text(dir / "b" / "config.json"));
  options.output = dir / "c";
  options.ignore = {"*experts*"};
  expect_error<UnsupportedError>([&] { quantize_checkpoint(options); },
                                 {"layers.0.ffn.experts.0.w1", "--ignore"});
}

/// All kinds of weights in one model: nothing is left in eight bits, nothing in four changes.
TEST_F(QuantizePacked, BesideFp8AndMxfp4) {
  write_model(dir / "plain", {{random_tensor("a.weight", {32, 64})}}, kLlamaConfig);
  quantize_checkpoint(dir / "plain", dir / "q");
  LoadedFolder model(dir / "q");
  auto& tensors = model.shard_of("a.weight");
  append(tensors, fp8_blocks("b", 128, 128));
  append(tensors, mxfp4_matrix("c", 32, 64, 118, 124));
  tensors.push_back(random_tensor("d.weight", {32, 64}));
  model.write(dir / "mixed");
  const QuantizeReport report = quantize_checkpoint(dir / "mixed", dir / "out");
  const std::map<std::string, std::string> expected = {{"a.weight", "moved"},
                                                       {"b.weight", "quantized"},
                                                       {"c.weight", "converted"},
                                                       {"d.weight", "quantized"}};
  int seen = 0;
  for (const TensorReport& t : report.tensors)
    if (const auto it = expected.find(t.name); it != expected.end()) {
      EXPECT_EQ(t.action, it->second) << t.name;
      ++seen;
    }
  EXPECT_EQ(seen, 4);
}

/// One global scale for both is not that of MXFP4: its values change, and the report says so.
TEST_F(QuantizePacked, Mxfp4BesideAPlainPartnerIsQuantized) {
  const std::string gate = "model.layers.0.mlp.gate_proj", up = "model.layers.0.mlp.up_proj";
  std::vector<TestTensor> tensors = {random_tensor(up + ".weight", {32, 64})};
  append(tensors, mxfp4_matrix(gate, 32, 64, 112, 114));
  write_model(dir / "in", {tensors}, kLlamaConfig);
  const QuantizeReport report = quantize_checkpoint(dir / "in", dir / "out");
  for (const TensorReport& t : report.tensors) {
    EXPECT_EQ(t.action, "quantized") << t.name;
    EXPECT_GT(t.squared_error, 0) << t.name;
  }
  EXPECT_THAT(report.warnings, Contains(AllOf(StartsWith(kRounded), EndsWith(gate))));
}

TEST_F(QuantizePacked, ConvertGivesMxfp4ItsPartnersScale) {
  const std::string gate = "model.layers.0.mlp.gate_proj", up = "model.layers.0.mlp.up_proj";
  write_model(dir / "plain", {{random_tensor(gate + ".weight", {32, 64})}}, kLlamaConfig);
  quantize_checkpoint(dir / "plain", dir / "q");
  LoadedFolder model(dir / "q");
  // The values are far below those of gate, so that the scale of gate serves both.
  append(model.shard_of(gate + ".weight"), mxfp4_matrix(up, 32, 64, 112, 114));
  model.write(dir / "mixed");
  const QuantizeReport report = convert(dir / "mixed", dir / "out", "compressed-tensors");
  for (const TensorReport& t : report.tensors)
    EXPECT_EQ(t.action, t.name.starts_with(gate) ? "moved" : "quantized") << t.name;
  EXPECT_THAT(report.warnings, Contains(AllOf(StartsWith(kRounded), EndsWith(up))));
  EXPECT_EQ(findings_of(dir / "out"), "");
  EXPECT_EQ(LoadedModel(dir / "out").at(gate + ".weight_packed").bytes,
            LoadedModel(dir / "q").at(gate + ".weight").bytes);
}

}  // namespace nvfp4::quantize_packed_test
