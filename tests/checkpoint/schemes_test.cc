#include "checkpoint/formats/format.h"
#include "testing.h"

namespace nvfp4::checkpoint::schemes_test {

const CheckpointFormat& kModelOpt = checkpoint_format("modelopt");
const CheckpointFormat& kCompressedTensors = checkpoint_format("compressed-tensors");

TEST(ModelOpt, ConfigsSayWhatLoadersDemand) {
  const std::vector<std::string> quantized = {"m.q_proj"};
  const ConfigFacts facts = {Scheme::nvfp4, {}, quantized};
  const Json config = kModelOpt.quantization_config(facts);
  const Json numbers =
      Json::parse(R"({"dynamic": false, "num_bits": 4, "type": "float", "group_size": 16})");
  EXPECT_EQ(config["config_groups"]["group_0"]["weights"], numbers);
  EXPECT_EQ(config["config_groups"]["group_0"]["input_activations"], numbers);
  EXPECT_EQ(config["config_groups"]["group_0"]["targets"], Json::parse(R"(["Linear"])"));
  EXPECT_EQ(config["ignore"], Json::parse(R"(["lm_head"])"));
  EXPECT_EQ(config["quant_algo"], "NVFP4");
  EXPECT_EQ(config["quant_method"], "modelopt");
  const Json side = kModelOpt.hf_quant_config(facts);
  EXPECT_EQ(side["producer"]["name"], "modelopt");
  EXPECT_EQ(side["quantization"],
            Json::parse(R"({"quant_algo": "NVFP4", "kv_cache_quant_algo": null, "group_size": 16,
                            "exclude_modules": ["lm_head"]})"));
  const ConfigFacts a16 = {Scheme::nvfp4a16, {}, quantized};
  EXPECT_EQ(kModelOpt.quantization_config(a16)["quant_algo"], "W4A16_NVFP4");
  EXPECT_FALSE(
      kModelOpt.quantization_config(a16)["config_groups"]["group_0"].contains("input_activations"));
  EXPECT_EQ(kModelOpt.hf_quant_config(a16)["quantization"]["quant_algo"], "W4A16_NVFP4");
}

TEST(CompressedTensors, ConfigIsTheOneOfTheFormat) {
  const Json config = kCompressedTensors.quantization_config({Scheme::nvfp4, {}, {}});
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
                      {Scheme::nvfp4a16, {}, {}})["config_groups"]["group_0"]["input_activations"]
                  .is_null());
  EXPECT_EQ(kCompressedTensors.hf_quant_config, nullptr);
}

TEST(CheckpointFormat, AnUnknownNameListsTheKnownOnes) {
  EXPECT_EQ(&checkpoint_format("modelopt"), &kModelOpt);
  expect_error<ValueError>([] { checkpoint_format("gptq"); },
                           {"gptq", "modelopt", "compressed-tensors", "gguf"});
}

}  // namespace nvfp4::checkpoint::schemes_test
