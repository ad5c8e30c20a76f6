#include "checkpoint/source/model_folder.h"

#include "checkpoint/checkpoints.h"

namespace nvfp4::checkpoint::model_folder_test {

struct ModelFolderTest : FolderTest {};

TEST_F(ModelFolderTest, NamesShardsAndOtherFiles) {
  write_tiny_llama(dir / "in");
  write_text(dir / "in" / "nvfp4.files.json", "not of the model");
  const ModelFolder model = open_model_folder(dir / "in");
  EXPECT_EQ(model.file_names.size(), 3u);
  EXPECT_EQ(model.index_name, "model.safetensors.index.json");
  EXPECT_EQ(model.others,
            (std::vector<fs::path>{"assets/LICENSE", "modeling_llama.py", "tokenizer.json"}));
  EXPECT_TRUE(model.warnings.empty());
}

TEST_F(ModelFolderTest, OtherWeightsAndHiddenFoldersAreLeftOut) {
  write_tiny_llama(dir / "in");
  write_text(dir / "in" / "pytorch_model.bin", "x");
  write_text(dir / "in" / "extra.safetensors", "x");
  fs::create_directories(dir / "in" / ".git");
  write_text(dir / "in" / ".git" / "config", "x");
  const ModelFolder model = open_model_folder(dir / "in");
  EXPECT_EQ(model.others.size(), 3u);
  EXPECT_EQ(model.warnings.size(), 3u);
}

TEST_F(ModelFolderTest, ShardsWithoutAnIndexMustBeAllThere) {
  fs::create_directories(dir / "in");
  write_shard(dir / "in" / "model-00001-of-00002.safetensors",
              {random_tensor("x.weight", {16, 16})});
  expect_error<IoError>([&] { open_model_folder(dir / "in"); }, {"1 of 2"});
  write_shard(dir / "in" / "model-00002-of-00002.safetensors",
              {random_tensor("y.weight", {16, 16})});
  EXPECT_EQ(open_model_folder(dir / "in").index_name, "model.safetensors.index.json");
}

TEST_F(ModelFolderTest, QuantizedWeightsMustBeWhole) {
  using enum safetensors::DType;
  const auto tensor = [](const std::string& name, safetensors::DType dtype,
                         std::vector<std::int64_t> shape) {
    const auto bytes = element_count(shape) * safetensors::dtype_bits(dtype) / 8;
    return TestTensor{{name, dtype, std::move(shape)},
                      std::vector<std::byte>(static_cast<std::size_t>(bytes))};
  };
  struct Case {
    std::vector<TestTensor> tensors;
    std::string form;  // or none
  };
  const std::vector<Case> cases = {
      {{tensor("a.weight", u8, {16, 16}), tensor("a.weight_scale", f8_e4m3, {16, 2}),
        tensor("a.weight_scale_2", f32, {})},
       "NVFP4"},
      {{tensor("a.weight", f8_e4m3, {200, 16}), tensor("a.weight_scale_inv", f32, {2, 1})}, "FP8"},
      {{tensor("a.weight", f8_e4m3, {200, 16}), tensor("a.weight_scale", bf16, {200, 1})}, "FP8"},
      {{tensor("a.weight", i8, {16, 16}), tensor("a.scale", f8_e8m0, {16, 1})}, "MXFP4"},
      {{tensor("a.weight", u8, {16, 16}), tensor("a.weight_scale", f8_e4m3, {16, 2})}, ""},
      {{tensor("a.weight", f8_e4m3, {16, 16}), tensor("a.weight_scale", f32, {3, 5})}, ""},
  };
  for (const Case& c : cases) {
    const TempDir dir;
    fs::create_directories(dir / "in");
    write_shard(dir / "in" / "model.safetensors", c.tensors);
    for (const fs::path& input : {dir / "in", dir / "in" / "model.safetensors"}) {
      if (c.form.empty()) {
        expect_error<FormatError>([&] { open_model_folder(input); }, {"model.safetensors", "'a."});
        continue;
      }
      const ModelFolder model = open_model_folder(input);
      ASSERT_EQ(model.tensors.size(), 1u);
      EXPECT_EQ(model.tensors[0].form_name(), c.form);
      EXPECT_EQ(model.tensors[0].name, "a.weight");
    }
  }
}

TEST_F(ModelFolderTest, AnEmptyConfigurationIsAnErrorNotAbsence) {
  for (const std::string name : {"config.json", "hf_quant_config.json"}) {
    const TempDir dir;
    write_tiny_llama(dir / "in");
    write_text(dir / "in" / name, "");
    expect_error<FormatError>([&] { open_model_folder(dir / "in"); }, {"/" + name});
    if (name == "hf_quant_config.json") {
      EXPECT_NO_THROW(open_model_folder(dir / "in", /*to_repair=*/true)) << "it is written anew";
    }
  }
}

}  // namespace nvfp4::checkpoint::model_folder_test
