#include <cfloat>

#include "checkpoint/case_table.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/work/work.h"

/// FP8 beside NVFP4: what recipes make of weights.
namespace nvfp4::fp8_test {

using nlohmann::json;
using safetensors::DType;

const std::string kQ = "model.layers.0.self_attn.q_proj", kK = "model.layers.0.self_attn.k_proj",
                  kV = "model.layers.0.self_attn.v_proj", kUp = "model.layers.0.mlp.up_proj";

class Fp8 : public ::testing::Test {
 protected:
  Fp8() {
    std::vector<TestTensor> tensors;
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
      tensors.push_back(random_tensor(name + ".weight", std::move(shape)));
    };
    add(kQ, {400, 272});
    add(kK, {144, 272});
    add(kV, {144, 272});
    add("model.layers.0.self_attn.o_proj", {272, 400});
    add(kUp, {512, 272});
    add("model.layers.0.mlp.gate_proj", {512, 272});
    add("model.layers.0.mlp.down_proj", {272, 512});
    add("model.norm", {272});
    add("lm_head", {64, 272});
    write_model(in_, {tensors},
                "{\"model_type\": \"llama\", \"hidden_size\": 272, \"num_hidden_layers\": 1, "
                "\"architectures\": [\"LlamaForCausalLM\"]}");
  }

  QuantizeReport run(const std::string& action, const std::string& format,
                     const std::string& amaxes = {}) {
    write_text(dir_ / "r.yaml",
               fmt::format("rules:\n  - {{kind: attention, action: {}}}\n", action));
    auto options = quantize_options(
        in_, out_, {"--recipe", (dir_ / "r.yaml").string(), "--format", format, "--overwrite"});
    if (!amaxes.empty()) {
      write_text(dir_ / "amax.json", amaxes);
      options.input_amax = dir_ / "amax.json";
    }
    return quantize_checkpoint(options);
  }

  static std::vector<float> values(const LoadedModel& model, const std::string& name) {
    const MatrixView m = model.matrix(name);
    std::vector<float> all;
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t c = 0; c < m.cols; ++c) all.push_back(m.at(r, c));
    return all;
  }
  static std::vector<float> floats(const LoadedModel::Tensor& t) {
    std::vector<float> all(t.bytes.size() / sizeof(float));
    std::memcpy(all.data(), t.bytes.data(), t.bytes.size());
    return all;
  }
  static float amax(const std::vector<float>& x) {
    float most = 0;
    for (const float v : x) most = std::max(most, std::fabs(v));
    return most;
  }
  /// Expects codes of the weight that match its scales for blocks of that size.
  void expect_codes(const std::string& module, std::int64_t high, std::int64_t wide) const {
    const LoadedModel in(in_), out(out_);
    const auto x = values(in, module + ".weight");
    const auto& codes = out.at(module + ".weight");
    EXPECT_EQ(codes.dtype, DType::f8_e4m3);
    const auto scales = floats(out.at(module + ".weight_scale"));
    const std::int64_t rows = codes.shape.at(0), cols = codes.shape.at(1),
                       across = ceil_div(cols, wide);
    ASSERT_EQ(scales.size(), static_cast<std::size_t>(ceil_div(rows, high) * across));
    std::vector<float> most(scales.size());
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const auto s = static_cast<std::size_t>(i / cols / high * across + i % cols / wide);
      const auto at = static_cast<std::size_t>(i);
      most[s] = std::max(most[s], std::fabs(x[at]));
      ASSERT_EQ(codes.bytes[at], std::byte{E4M3::from_float(x[at] / scales[s]).bits}) << i;
    }
    if (high == rows) return;
    for (std::size_t s = 0; s < scales.size(); ++s) EXPECT_EQ(scales[s], most[s] / 448) << s;
  }
  json config() const { return json::parse(read_text(out_ / "config.json")); }
  void expect_sound() const {
    for (const Finding& f : verify_checkpoint(verify_options(out_, in_)).findings)
      EXPECT_TRUE(f.code == "excluded-by-substring" || f.code == "input-scale-default" ||
                  f.code == "cache-scale-missing")
          << f.text;
  }

  const TempDir dir_;
  const fs::path in_ = dir_ / "in", out_ = dir_ / "out";
};

/// Loaders fuse a decay projection with its siblings by name, but keep it apart by format.
TEST_F(Fp8, DecayProjectionBesideNvfp4HasItsOwnScale) {
  const std::string layer = "model.layers.0.linear_attn.", decay = layer + "in_proj_b";
  write_model(in_,
              {{random_tensor(layer + "in_proj_qkv.weight", {64, 64}),
                random_tensor(decay + ".weight", {16, 64})}},
              R"({"model_type": "qwen3_next", "hidden_size": 64, "num_hidden_layers": 1})");
  write_text(dir_ / "r.yaml", "rules:\n  - {match: " + decay + ", action: fp8}\n");
  quantize_checkpoint(in_, out_, {"--recipe", (dir_ / "r.yaml").string()});
  const LoadedModel in(in_), out(out_);
  EXPECT_EQ(out.scalar(decay + ".weight_scale"), amax(values(in, decay + ".weight")) / 448);
  EXPECT_EQ(out.scalar(decay + ".input_scale"), 1);
}

TEST_F(Fp8, OneScaleIsSharedByWhatLoadersFuse) {
  const QuantizeReport report = run("fp8", "modelopt");
  const LoadedModel in(in_), out(out_);
  float most = 0;
  for (const std::string& m : {kQ, kK, kV}) most = std::max(most, amax(values(in, m + ".weight")));
  for (const std::string& m : {kQ, kK, kV}) {
    EXPECT_EQ(out.scalar(m + ".weight_scale"), most / 448);
    EXPECT_TRUE(out.at(m + ".weight_scale").shape.empty());
    EXPECT_EQ(out.scalar(m + ".input_scale"), 1);
    const auto& shape = out.at(m + ".weight").shape;
    expect_codes(m, shape[0], shape[1]);
  }
  EXPECT_EQ(out.at(kUp + ".weight").dtype, DType::u8);
  for (const TensorReport& t : report.tensors) {
    if (t.name != kQ + ".weight") continue;
    EXPECT_EQ(t.action, "fp8");
    EXPECT_LT(t.squared_error, 0.002 * t.squared_norm);
    EXPECT_GT(t.squared_error, 0);
  }
  expect_sound();
}

TEST_F(Fp8, ModelOptListsEachLayerAsMixedPrecision) {
  run("fp8", "modelopt");
  const json c = config()["quantization_config"];
  EXPECT_EQ(c["quant_algo"], "MIXED_PRECISION");
  EXPECT_EQ(c["quantized_layers"][kQ]["quant_algo"], "FP8");
  EXPECT_EQ(c["quantized_layers"][kUp]["quant_algo"], "NVFP4");
  EXPECT_EQ(c["config_groups"]["group_1"]["weights"]["num_bits"], 8);
  const json side = json::parse(read_text(out_ / "hf_quant_config.json"))["quantization"];
  EXPECT_EQ(side["quantized_layers"], c["quantized_layers"]);
  run("fp8_channel", "modelopt");
  EXPECT_EQ(config()["quantization_config"]["quantized_layers"][kQ]["quant_algo"],
            "FP8_PER_CHANNEL_PER_TOKEN");
  EXPECT_EQ(config()["quantization_config"]["config_groups"]["group_1"]["weights"]["strategy"],
            "channel");
  EXPECT_EQ(LoadedModel(out_).at(kQ + ".weight_scale").shape, (std::vector<std::int64_t>{400}));
  EXPECT_FALSE(LoadedModel(out_).has(kQ + ".input_scale"));
  expect_codes(kQ, 1, 272);
  expect_sound();
}

TEST_F(Fp8, CompressedTensorsHasItsOwnGroup) {
  run("fp8_block", "compressed-tensors");
  expect_codes(kQ, 128, 128);
  expect_codes(kK, 128, 128);
  expect_sound();
  json group = config()["quantization_config"]["config_groups"]["group_1"];
  EXPECT_EQ(group["weights"]["block_structure"], (json{128, 128}));
  EXPECT_EQ(group["targets"].size(), 4u);
  EXPECT_EQ(config()["quantization_config"]["format"], "mixed-precision");
  run("fp8_channel", "compressed-tensors");
  EXPECT_EQ(LoadedModel(out_).at(kQ + ".weight_scale").shape, (std::vector<std::int64_t>{400, 1}));
  expect_codes(kQ, 1, 272);
  expect_sound();
  run("fp8", "compressed-tensors");
  group = config()["quantization_config"]["config_groups"]["group_1"];
  EXPECT_EQ(group["input_activations"]["strategy"], "token");
  EXPECT_TRUE(group["input_activations"]["dynamic"]);
  EXPECT_FALSE(LoadedModel(out_).has(kQ + ".input_scale"));
  expect_sound();
  run("fp8", "compressed-tensors", "{\"*\": 224}");
  group = config()["quantization_config"]["config_groups"]["group_1"];
  EXPECT_EQ(group["input_activations"]["strategy"], "tensor");
  EXPECT_EQ(LoadedModel(out_).scalar(kQ + ".input_scale"), 0.5f);
  expect_sound();
}

TEST_F(Fp8, Mxfp8ExponentsAreTheSmallestThatFit) {
  for (const float amax : {448.0f, 1.0f, 0x1p-126f, 3e38f, FLT_TRUE_MIN, 449.0f, 0.0123f,
                           std::nextafter(448.0f, 449.0f), 896.0f}) {
    const int exponent = checkpoint::mxfp8_exponent(amax) - 127;
    EXPECT_LE(double{amax}, std::ldexp(448.0, exponent)) << amax;
    EXPECT_TRUE(exponent == -127 || double{amax} > std::ldexp(448.0, exponent - 1)) << amax;
  }
  EXPECT_EQ(checkpoint::mxfp8_exponent(0), 0);
}

TEST_F(Fp8, Mxfp8IsWrittenInBothFormats) {
  std::vector<TestTensor> tensors;
  for (const std::string& m : {kQ, kK, kV, kUp})
    tensors.push_back(random_tensor(m + ".weight", {48, 96}));
  write_model(in_, {tensors}, "{\"model_type\": \"llama\", \"hidden_size\": 96}");
  for (const std::string format : {"modelopt", "compressed-tensors"}) {
    run("mxfp8", format);
    const LoadedModel in(in_), out(out_);
    const auto x = values(in, kQ + ".weight");
    const auto &codes = out.at(kQ + ".weight"), &scales = out.at(kQ + ".weight_scale");
    EXPECT_EQ(codes.dtype, DType::f8_e4m3);
    EXPECT_EQ(scales.dtype, DType::u8);
    EXPECT_EQ(scales.shape, (std::vector<std::int64_t>{48, 3}));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const int exponent = std::to_integer<int>(scales.bytes[i / 32]) - 127;
      ASSERT_EQ(codes.bytes[i], std::byte{E4M3::from_float(std::ldexp(x[i], -exponent)).bits}) << i;
    }
    EXPECT_FALSE(out.has(kQ + ".input_scale"));
    expect_sound();
    const json c = config()["quantization_config"];
    const json group = c["config_groups"]["group_1"];
    EXPECT_EQ(group["weights"]["group_size"], 32);
    EXPECT_EQ(group["targets"].size(), 3u);
    if (format == "modelopt") {
      EXPECT_EQ(c["quantized_layers"][kQ], (json{{"quant_algo", "MXFP8"}, {"group_size", 32}}));
    } else {
      EXPECT_EQ(group["format"], "mxfp8-quantized");
      EXPECT_EQ(group["weights"]["scale_dtype"], "torch.uint8");
      EXPECT_TRUE(group["input_activations"]["dynamic"]);
    }
    auto convert = convert_options(out_, dir_ / ("other" + format),
                                   format == "modelopt" ? "compressed-tensors" : "modelopt");
    convert_checkpoint(convert);
    const LoadedModel other(convert.output);
    EXPECT_EQ(other.at(kQ + ".weight").bytes, codes.bytes);
    EXPECT_EQ(other.at(kQ + ".weight_scale").bytes, scales.bytes);
    convert.output = dir_ / ("bf16" + format);
    convert.to = "bf16";
    convert_checkpoint(convert);
    const auto back = values(LoadedModel(convert.output), kQ + ".weight");
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(back[i], std::ldexp(E4M3{std::to_integer<std::uint8_t>(codes.bytes[i])}.to_float(),
                                    std::to_integer<int>(scales.bytes[i / 32]) - 127));
  }
}

TEST_F(Fp8, ZerosAndTheSmallestNumbersHaveAScale) {
  EXPECT_EQ(checkpoint::fp8_scale(0), 1);
  EXPECT_EQ(checkpoint::fp8_scale(448), 1);
  EXPECT_EQ(checkpoint::fp8_scale(FLT_TRUE_MIN), FLT_MIN);
  EXPECT_EQ(checkpoint::fp8_scale(FLT_MAX), FLT_MAX / 448);
}

TEST_F(Fp8, WhatIsNotFiniteIsNamed) {
  auto tensor = random_tensor(kQ + ".weight", {32, 64}, DType::f32);
  const float nan = NAN;
  std::memcpy(tensor.bytes.data() + 4 * (3 * 64 + 5), &nan, 4);
  write_model(in_, {{tensor}}, "{\"model_type\": \"llama\"}");
  for (const char* action : {"fp8", "fp8_channel", "fp8_block"})
    expect_error<ValueError>([&] { run(action, "compressed-tensors"); }, {"[3, 5]", "finite"});
}

/// A stack of experts [2, 128, 64]: one scale for each expert, for each row, or for each block.
TEST_F(Fp8, StacksHaveTheScalesOfTheirExperts) {
  const std::string stack = "model.layers.0.mlp.experts.gate_up_proj";
  struct Scales {
    const char* suffix;
    std::vector<std::int64_t> shape;
    std::int64_t rows, cols;
  };
  for (const Scales& scales :
       {Scales{"_scale_inv", {2, 1, 1}, 128, 64}, Scales{"_scale", {2}, 128, 64},
        Scales{"_scale", {2, 128, 1}, 1, 64}, Scales{"_scale_inv", {2, 1, 1}, 128, 128},
        Scales{"_scale_inv", {2, 2, 1}, 64, 64}}) {
    SCOPED_TRACE(fmt::format("{} {}", scales.suffix, scales.rows));
    PackedWeight packed =
        fp8_weight(stack, 256, 64, scales.suffix, scales.shape, scales.rows, scales.cols);
    packed.tensors[0].spec = {stack, DType::f8_e4m3, {2, 128, 64}};
    const char* config = R"({"model_type": "qwen3_moe", "hidden_size": 64, "num_experts": 2})";
    write_model(in_, {packed.tensors}, config);
    write_model(dir_ / "plain", {{stored_f32(stack, {2, 128, 64}, packed.values)}}, config);
    fs::remove_all(out_);
    convert(in_, out_, "bf16");
    EXPECT_EQ(LoadedModel(out_).at(stack).bytes, encode(packed.values, DType::bf16));
    EXPECT_EQ(LoadedModel(out_).tensors.size(), 1u);
    fs::remove_all(out_);
    quantize_checkpoint(in_, out_ / "a");
    quantize_checkpoint(dir_ / "plain", out_ / "b");
    EXPECT_TRUE(LoadedModel(out_ / "a").has("model.layers.0.mlp.experts.1.up_proj.weight_scale"));
    expect_same_tensors(out_ / "a", out_ / "b");
  }
}

/// Without any scales, the codes are the values.
TEST(Fp8Values, WithoutScalesAreTheCodes) {
  const table::Model model("empty",
                           "fp8 a 128x128 .weight_scale 1x1 128x128; rm a.weight_scale; "
                           "fp8 b 128x128 .weight_scale 1x1 128x128; rm b.weight_scale");
  convert(model.path, model.dir / "bf16", "bf16");
  const LoadedModel in(model.path), bf16(model.dir / "bf16");
  for (const auto& [name, tensor] : in.tensors) {
    std::vector<float> values;
    for (const std::byte code : tensor.bytes)
      values.push_back(E4M3{std::to_integer<std::uint8_t>(code)}.to_float());
    EXPECT_EQ(bf16.at(name).bytes, encode(values, DType::bf16)) << name;
  }
  quantize_checkpoint(model.path, model.dir / "q");
  quantize_checkpoint(model.dir / "bf16", model.dir / "q of bf16");
  expect_same_tensors(model.dir / "q", model.dir / "q of bf16");
}

}  // namespace nvfp4::fp8_test
