#include "checkpoint/checkpoints.h"

/// FP8 codes without their scale: as values they would be wrong by orders of magnitude.
namespace nvfp4::lost_scales_test {

namespace fs = std::filesystem;

const std::string kO = "model.layers.0.self_attn.o_proj", kUp = "model.layers.0.mlp.up_proj";
constexpr const char* kPlainConfig = "{\"model_type\": \"llama\"}";

VerifyReport verified(const fs::path& path) {
  VerifyOptions options;
  options.path = path;
  return verify_checkpoint(options);
}

class LostScales : public testing::Test {
 protected:
  /// Two FP8 matrices, without the scales of the first or of both.
  void write(const std::string& scale, const std::string& config, bool both = false) {
    std::vector<TestTensor> tensors;
    for (const std::string& name : {kO, kUp})
      append(tensors, fp8_weight(name, 128, 128, scale, {1, 1}, 128, 128));
    tensors.erase(tensors.begin() + 1);
    if (both) tensors.pop_back();
    fs::remove_all(in_);
    write_model(in_, {tensors}, config.c_str());
  }

  void expect_refused(const std::string& scale) {
    const std::string file = (in_ / "model.safetensors").string(), name = "'" + kO + scale + "'";
    for (const std::string& to : conversion_targets()) {
      const fs::path out = dir_ / (to == "gguf" ? "out.gguf" : "out");
      expect_error<FormatError>([&] { convert(in_, out, to); },
                                {file, "'" + kO + ".weight'", name});
      EXPECT_FALSE(fs::exists(out));
    }
    expect_error<FormatError>([&] { quantize_checkpoint(quantize_options(in_, dir_ / "out")); },
                              {file, "'" + kO + ".weight'", name});
    EXPECT_FALSE(fs::exists(dir_ / "out"));
    expect_error<FormatError>([&] { compare_checkpoints(in_, in_); },
                              {file, "'" + kO + ".weight'", name});
    expect_error<FormatError>([&] { const Checkpoint checkpoint(in_); },
                              {file, "'" + kO + ".weight'", name});
    InspectOptions inspect;  // shows what is stored, whatever it means
    inspect.path = in_;
    EXPECT_NO_THROW(inspect_checkpoint(inspect));
    const VerifyReport report = verified(in_);
    EXPECT_TRUE(report.broken());
    EXPECT_TRUE(codes_of(report).contains("missing-scale")) << text_of(report);
    EXPECT_NE(text_of(report).find(name), std::string::npos) << text_of(report);
  }

  TempDir dir_;
  const fs::path in_ = dir_ / "in";
};

TEST_F(LostScales, OfOneWeightAmongOthersAreAnError) {
  for (const std::string scale : {".weight_scale", ".weight_scale_inv"})
    for (const char* config :
         {kPlainConfig,
          R"({"model_type": "llama", "quantization_config": {"quant_method": "fp8"}})"}) {
      SCOPED_TRACE(scale + config);
      write(scale, config);
      expect_refused(scale);
    }
}

TEST_F(LostScales, OfAllWeightsAreAnErrorWhereTheConfigurationSaysFp8) {
  for (const char* quantization :
       {R"({"quant_method": "fp8", "weight_block_size": [128, 128]})",
        R"({"quant_method": "fbgemm_fp8"})", R"({"quant_method": "modelopt", "quant_algo": "FP8"})",
        R"({"quant_method": "compressed-tensors", "config_groups": {"group_0":
            {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}}})",
        R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}}})"}) {
    SCOPED_TRACE(quantization);
    write(".weight_scale",
          fmt::format(R"({{"model_type": "llama", "quantization_config": {}}})", quantization),
          true);
    expect_refused(".weight_scale");
    expect_refused(".weight_scale_inv");
  }
  write(".weight_scale", kPlainConfig, true);
  write_text(in_ / "hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})");
  expect_refused(".weight_scale");
}

TEST_F(LostScales, VectorsHaveNone) {
  std::vector<TestTensor> tensors;
  append(tensors, fp8_weight(kO, 128, 128, ".weight_scale", {1, 1}, 128, 128));
  tensors.push_back(tensors.front());
  tensors.back().spec.name = "model.norm.weight";
  tensors.back().spec.shape = {128 * 128};
  write_model(in_, {tensors}, kPlainConfig);
  EXPECT_EQ(codes_of(verified(in_)).count("missing-scale"), 0U);
  EXPECT_NO_THROW(quantize_checkpoint(quantize_options(in_, dir_ / "out")));
}

/// A form that is not known here may have scales of another name.
TEST_F(LostScales, AreNoneOfUnknownForms) {
  std::vector<TestTensor> tensors;
  append(tensors, fp8_weight(kUp, 128, 128, ".weight_scale_inv", {1, 1}, 128, 128));
  append(tensors, fp8_weight(kO, 128, 128, ".weight_scale_inv", {1, 1}, 128, 128));
  tensors.back().spec.name = kO + ".scale_weight";
  write_model(in_, {tensors}, kPlainConfig);
  ASSERT_TRUE(codes_of(verified(in_)).contains("unknown-form")) << text_of(verified(in_));
  EXPECT_NO_THROW(compare_checkpoints(in_, in_));
  EXPECT_NO_THROW(Checkpoint{in_});
}

TEST_F(LostScales, RepairDoesNotInventThem) {
  write_tiny_llama(dir_ / "plain");
  quantize_checkpoint(quantize_options(dir_ / "plain", dir_ / "q"));
  LoadedFolder model(dir_ / "q");
  PackedWeight a = fp8_weight("a", 64, 64, ".weight_scale", {}, 64, 64);
  a.tensors.pop_back();
  append(model.shards.begin()->second, a);
  append(model.shards.begin()->second, fp8_weight("b", 64, 64, ".weight_scale", {}, 64, 64));
  model.write(in_);
  RepairOptions repair;
  repair.input = in_;
  repair.output = dir_ / "out";
  expect_error<UnsupportedError>([&] { repair_checkpoint(repair); },
                                 {"missing-scale", "'a.weight'"});
}

TEST_F(LostScales, AreNoneWhereNobodySpeaksOfScales) {
  for (const char* config :
       {kPlainConfig, R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4",
                          "kv_cache_scheme": {"num_bits": 8, "type": "float"}}})"}) {
    write(".weight_scale", config, true);
    fs::remove_all(dir_ / "bf16");
    fs::remove_all(dir_ / "q");
    convert(in_, dir_ / "bf16", "bf16");
    const LoadedModel in(in_), bf16(dir_ / "bf16");
    for (const auto& [name, tensor] : in.tensors) {
      std::vector<float> values;
      for (const std::byte code : tensor.bytes)
        values.push_back(E4M3{std::to_integer<std::uint8_t>(code)}.to_float());
      EXPECT_EQ(bf16.at(name).bytes, encode(values, safetensors::DType::bf16)) << name;
    }
    quantize_checkpoint(quantize_options(in_, dir_ / "q"));
    fs::remove_all(dir_ / "q of bf16");
    quantize_checkpoint(quantize_options(dir_ / "bf16", dir_ / "q of bf16"));
    expect_same_tensors(dir_ / "q", dir_ / "q of bf16");
    EXPECT_FALSE(codes_of(verified(in_)).contains("missing-scale"));
    EXPECT_TRUE(Checkpoint(in_).has(kO + ".weight"));
  }
}

}  // namespace nvfp4::lost_scales_test
