#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/gguf_models.h"

/// `nvfp4 quantize` of models that hold NVFP4 weights already.
namespace nvfp4::quantize_packed_test {

constexpr const char* kAttention = "*.self_attn.*";

const std::string kQ = "model.layers.0.self_attn.q_proj", kK = "model.layers.0.self_attn.k_proj",
                  kV = "model.layers.0.self_attn.v_proj";

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
  LoadedModel quantize() {
    const QuantizeReport report = quantize_checkpoint(dir / "mixed", dir / "out");
    rounded = says(report.warnings, kQ + ".weight: its block scales were rounded");
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

}  // namespace nvfp4::quantize_packed_test
