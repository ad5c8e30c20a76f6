// params.json, which loaders of Mistral's own form read in place of config.json.
#include "checkpoint/checkpoints.h"

namespace nvfp4::params_test {

using Json = nlohmann::ordered_json;

const std::string kW1 = "layers.0.feed_forward.w1", kW2 = "layers.0.feed_forward.w2";
constexpr const char* kParams = R"({"dim": 128, "n_layers": 1, "rope_theta": 1e6,
  "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}})";

class Params : public testing::Test {
 protected:
  /// Mistral's FP8.
  Params() {
    std::vector<TestTensor> tensors = {random_tensor("norm.weight", {128})};
    for (const std::string& name : {kW1, kW2})
      append(tensors, fp8_weight(name, 128, 128, ".qscale_weight", {}, 128, 128));
    fs::create_directories(in_);
    write_shard(in_ / "consolidated.safetensors", tensors);
    write_text(in_ / "params.json", kParams);
  }
  QuantizeReport run(const std::string& format = "compressed-tensors") {
    return quantize_checkpoint(in_, out_, {"--format", format, "--overwrite"});
  }
  Json read(const char* name) const { return Json::parse(read_text(out_ / name)); }
  VerifyReport verified() const { return verify_checkpoint(verify_options(out_)); }

  const TempDir dir_;
  const fs::path in_ = dir_ / "in", out_ = dir_ / "out";
};

TEST_F(Params, SayWhatConfigJsonSays) {
  for (const char* format : {"compressed-tensors", "modelopt"}) {
    run(format);
    Json params = read("params.json");
    EXPECT_EQ(params["quantization_config"], read("config.json")["quantization_config"]);
    EXPECT_FALSE(params.contains("quantization"));
    EXPECT_EQ(params["rope_theta"], 1e6);
    EXPECT_FALSE(codes_of(verified()).contains("configs-disagree")) << text_of(verified());
  }
}

TEST_F(Params, OfDequantizedModelsSayNothing) {
  convert(in_, out_, "bf16");
  const Json params = read("params.json");
  EXPECT_FALSE(params.contains("quantization") || params.contains("quantization_config"));
  EXPECT_EQ(params["dim"], 128);
}

TEST_F(Params, DeclareFp8) {
  write_shard(in_ / "consolidated.safetensors",
              {fp8_weight(kW1, 128, 128, ".qscale_weight", {}, 128, 128).tensors[0]});
  expect_error<FormatError>([&] { run(); }, {"'" + kW1 + ".weight'", "params.json"});
}

TEST_F(Params, VerifyComparesThem) {
  run();
  write_text(out_ / "params.json", kParams);
  EXPECT_TRUE(codes_of(verified()).contains("configs-disagree")) << text_of(verified());
}

TEST_F(Params, OfOthersAreCarriedAsTheyAre) {
  const std::string other = R"({"learning_rate": 1, "quantization": {"bits": 2}})";
  write_text(in_ / "params.json", other);
  run();
  EXPECT_EQ(read_text(out_ / "params.json"), other);
}

/// Mistral's NVFP4: the names of compressed-tensors, declared under "quantization".
TEST_F(Params, DeclareNvfp4UnderEitherKey) {
  write_shard(in_ / "consolidated.safetensors",
              {random_tensor(kW1 + ".weight", {128, 128}), random_tensor("norm.weight", {128})});
  write_text(in_ / "params.json", R"({"dim": 128, "n_layers": 1})");
  run();
  Json params = read("params.json");
  const Json declared = params["quantization_config"];
  params.erase("quantization_config");
  params["quantization"] = declared;
  fs::remove(out_ / "config.json");
  write_text(out_ / "params.json", params.dump());
  convert(out_, dir_ / "again", "compressed-tensors");
  expect_same_tensors(out_, dir_ / "again");
  params = Json::parse(read_text(dir_ / "again" / "params.json"));
  EXPECT_EQ(params["quantization_config"], declared);
  EXPECT_FALSE(params.contains("quantization"));
}

TEST_F(Params, ResumeKeepsThem) {
  run();
  auto options = quantize_options(in_, out_, {"--format", "compressed-tensors", "--resume"});
  const std::string before = read_text(out_ / "params.json");
  fs::remove(out_ / "params.json");
  quantize_checkpoint(options);
  EXPECT_EQ(read_text(out_ / "params.json"), before);
}

}  // namespace nvfp4::params_test
