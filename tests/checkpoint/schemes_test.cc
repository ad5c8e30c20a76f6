#include "checkpoint/formats/format.h"
#include "testing.h"

namespace nvfp4::checkpoint::schemes_test {

const CheckpointFormat& kModelOpt = checkpoint_format("modelopt");
const CheckpointFormat& kCompressedTensors = checkpoint_format("compressed-tensors");

TEST(ModelOpt, ConfigsSayWhatLoadersDemand) {
  const std::vector<std::string> quantized = {"m.q_proj"};
  const ConfigFacts facts = {Scheme::w4a4, {}, quantized};
  const Json config = kModelOpt.quantization_config(facts);
  const Json numbers =
      Json::parse(R"({"dynamic": false, "num_bits": 4, "type": "float", "group_size": 16})");
  EXPECT_EQ(config["config_groups"]["group_0"]["weights"], numbers);
  EXPECT_EQ(config["config_groups"]["group_0"]["input_activations"], numbers);
  EXPECT_EQ(config["config_groups"]["group_0"]["targets"], Json::parse(R"(["Linear"])"));
  EXPECT_EQ(config["ignore"], Json::parse(R"(["lm_head"])"));
  EXPECT_EQ(config["quant_algo"], "NVFP4");
  EXPECT_EQ(config["quant_method"], "modelopt");
  const Json side = kModelOpt.hf_quant_config(facts, config);
  EXPECT_EQ(side["producer"]["name"], "modelopt");
  EXPECT_EQ(side["quantization"],
            Json::parse(R"({"quant_algo": "NVFP4", "kv_cache_quant_algo": null, "group_size": 16,
                            "exclude_modules": ["lm_head"]})"));
  const ConfigFacts a16 = {Scheme::w4a16, {}, quantized};
  EXPECT_EQ(kModelOpt.quantization_config(a16)["quant_algo"], "W4A16_NVFP4");
  EXPECT_FALSE(
      kModelOpt.quantization_config(a16)["config_groups"]["group_0"].contains("input_activations"));
  EXPECT_EQ(kModelOpt.hf_quant_config(
                a16, kModelOpt.quantization_config(a16))["quantization"]["quant_algo"],
            "W4A16_NVFP4");
}

TEST(CompressedTensors, ConfigIsTheOneOfTheFormat) {
  const Json config = kCompressedTensors.quantization_config({Scheme::w4a4, {}, {}});
  EXPECT_EQ(config, Json::parse(R"({
    "config_groups": {"group_0": {"targets": ["Linear"],
      "weights": {"num_bits": 4, "type": "float", "symmetric": true, "group_size": 16,
        "strategy": "tensor_group", "block_structure": null, "dynamic": false, "actorder": null,
        "scale_dtype": "torch.float8_e4m3fn", "zp_dtype": null, "observer": "static_minmax",
        "observer_kwargs": {}},
      "input_activations": {"num_bits": 4, "type": "float", "symmetric": true, "group_size": 16,
        "strategy": "tensor_group", "block_structure": null, "dynamic": "local", "actorder": null,
        "scale_dtype": "torch.float8_e4m3fn", "zp_dtype": null, "observer": "static_minmax",
        "observer_kwargs": {}},
      "output_activations": null, "format": null}},
    "quant_method": "compressed-tensors", "kv_cache_scheme": null,
    "format": "nvfp4-pack-quantized", "quantization_status": "compressed",
    "global_compression_ratio": null, "ignore": ["lm_head"]})"));
  EXPECT_TRUE(kCompressedTensors
                  .quantization_config(
                      {Scheme::w4a16, {}, {}})["config_groups"]["group_0"]["input_activations"]
                  .is_null());
  EXPECT_EQ(kCompressedTensors.hf_quant_config, nullptr);
}

TEST(Schemes, BothInOneCheckpointAreDeclaredByName) {
  const std::vector<std::string> quantized = {"m.down_proj", "m.o_proj", "m.q_proj"};
  const auto facts = [&](std::span<const std::string> weights_only) {
    return ConfigFacts{Scheme::w4a4, {}, quantized, {}, weights_only};
  };
  const std::vector<std::string> one = {"m.o_proj"}, two = {"m.down_proj", "m.o_proj"};
  const Json config = kModelOpt.quantization_config(facts(one));
  EXPECT_EQ(config["quant_algo"], "MIXED_PRECISION");
  const Json layers = Json::parse(R"({"m.down_proj": {"quant_algo": "NVFP4", "group_size": 16},
      "m.o_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
      "m.q_proj": {"quant_algo": "NVFP4", "group_size": 16}})");
  EXPECT_EQ(config["quantized_layers"], layers);
  EXPECT_EQ(kModelOpt.hf_quant_config(facts(one), config)["quantization"]["quantized_layers"],
            layers);
  const auto expect_groups = [&](const CheckpointFormat& format,
                                 std::span<const std::string> weights_only, const char* w4a4,
                                 const char* w4a16) {
    const Json all = format.quantization_config(facts(weights_only));
    const Json& groups = all["config_groups"];
    ASSERT_EQ(groups.size(), 2u);
    for (const auto& [name, group] : groups.items()) {
      const Json inputs = group.value("input_activations", Json());
      EXPECT_EQ(group["targets"], Json::parse(inputs.is_null() ? w4a16 : w4a4)) << name;
      EXPECT_EQ(group["weights"]["num_bits"], 4);
    }
  };
  expect_groups(kModelOpt, one, R"(["m.down_proj", "m.q_proj"])", R"(["m.o_proj"])");
  expect_groups(kCompressedTensors, one, R"(["Linear"])", R"(["m.o_proj"])");
  expect_groups(kCompressedTensors, two, R"(["m.q_proj"])", R"(["Linear"])");
  EXPECT_EQ(kCompressedTensors.quantization_config(facts(one))["format"], "nvfp4-pack-quantized");
}

TEST(CheckpointFormat, AnUnknownNameListsTheKnownOnes) {
  EXPECT_EQ(&checkpoint_format("modelopt"), &kModelOpt);
  expect_error<ValueError>([] { checkpoint_format("gptq"); },
                           {"gptq", "modelopt", "compressed-tensors", "gguf"});
}

}  // namespace nvfp4::checkpoint::schemes_test
