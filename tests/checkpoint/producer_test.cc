#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/gguf_models.h"

/// Tests of the producer that an output names.
namespace nvfp4::producer_test {

Json json_of(const fs::path& file) { return Json::parse(read_text(file)); }

safetensors::Metadata metadata_of(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors")
      return safetensors::File::open(entry.path()).metadata();
  return {};
}

struct Producer : LlamaTest {};

/// Loaders, vLLM's among them, go by this name to know the format.
TEST_F(Producer, IsModelOptInKeysThatLoadersRead) {
  quantize_checkpoint(dir / "in", dir / "out");
  for (const Json& producer :
       {json_of(dir / "out" / "config.json")["quantization_config"]["producer"],
        json_of(dir / "out" / "hf_quant_config.json")["producer"]})
    EXPECT_EQ(producer.at("name"), "modelopt");
}

TEST_F(Producer, HasItsOwnKeyInEveryShard) {
  for (const std::string format : {"modelopt", "compressed-tensors", "comfyui"}) {
    quantize_checkpoint(dir / "in", dir / format,
                        {"--format", format, "--ignore", "*.o_proj", "--method", "mse"});
    const Json producer = json_of(dir / format / "config.json").at("nvfp4_cpp");
    EXPECT_EQ(producer.at("version"), version());
    EXPECT_EQ(producer.at("scale_search"), "mse");
    EXPECT_EQ(producer.at("ignore"), Json::parse(R"(["*.o_proj"])"));
    EXPECT_FALSE(producer.contains("include"));
    for (const auto& entry : fs::directory_iterator(dir / format)) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto metadata = safetensors::File::open(entry.path()).metadata();
      ASSERT_TRUE(metadata.contains("nvfp4_cpp")) << entry.path();
      EXPECT_EQ(Json::parse(metadata.at("nvfp4_cpp")), producer);
    }
  }
}

TEST_F(Producer, StaysWithTheScalesAndGoesWithThem) {
  quantize_checkpoint(dir / "in", dir / "a");
  const Json producer = json_of(dir / "a" / "config.json").at("nvfp4_cpp");
  convert(dir / "a", dir / "b", "compressed-tensors");
  EXPECT_EQ(json_of(dir / "b" / "config.json").at("nvfp4_cpp"), producer);
  EXPECT_EQ(Json::parse(metadata_of(dir / "b").at("nvfp4_cpp")), producer);
  convert(dir / "b", dir / "c", "bf16");
  EXPECT_FALSE(json_of(dir / "c" / "config.json").contains("nvfp4_cpp"));
  EXPECT_FALSE(metadata_of(dir / "c").contains("nvfp4_cpp"));
  // The output does not claim scales of another producer.
  Json config = json_of(dir / "a" / "config.json");
  config.erase("nvfp4_cpp");
  write_text(dir / "a" / "config.json", config.dump());
  for (const char* number : {"1", "2", "3"}) {
    const fs::path shard =
        dir / "a" / ("model-0000" + std::string(number) + "-of-00003.safetensors");
    std::vector<TestTensor> tensors;
    {
      const auto file = safetensors::File::open(shard);
      for (const auto& t : file.tensors()) {
        tensors.push_back({{t.name, t.dtype, t.shape}, std::vector<std::byte>(t.bytes)});
        file.read(t, 0, tensors.back().bytes);
      }
    }
    write_shard(shard, tensors);
  }
  convert(dir / "a", dir / "d", "compressed-tensors");
  EXPECT_FALSE(json_of(dir / "d" / "config.json").contains("nvfp4_cpp"));
  EXPECT_FALSE(metadata_of(dir / "d").contains("nvfp4_cpp"));
}

TEST_F(Producer, FinishedFolderHoldsModelAndList) {
  quantize_checkpoint(dir / "in", dir / "out");
  convert(dir / "out", dir / "ct", "compressed-tensors");
  for (const char* folder : {"out", "ct"})
    for (const auto& [name, content] : files_of(dir / folder)) {
      EXPECT_FALSE(name.starts_with(".")) << name;
      EXPECT_TRUE(name.find("nvfp4") == name.npos || name == "nvfp4.files.json") << name;
    }
}

TEST(DefaultFormat, IsThatOfTheOutputsName) {
  const TempDir dir;
  gguf::write_llama(dir / "in");
  EXPECT_EQ(default_format("a/m.gguf"), "gguf");
  EXPECT_EQ(default_format("a/m"), "modelopt");
  QuantizeCheckpointOptions options;
  options.input = dir / "in";
  options.output = dir / "m.gguf";
  quantize_checkpoint(options);
  EXPECT_TRUE(fs::is_regular_file(dir / "m.gguf"));
  options.output = dir / "m";
  quantize_checkpoint(options);
  EXPECT_TRUE(fs::exists(dir / "m" / "hf_quant_config.json"));
  convert(dir / "m", dir / "n.gguf", "");
  EXPECT_TRUE(fs::is_regular_file(dir / "n.gguf"));
  EXPECT_THROW(convert(dir / "m", dir / "n", ""), ValueError);
}

}  // namespace nvfp4::producer_test
