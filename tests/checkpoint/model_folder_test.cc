#include "checkpoint/source/model_folder.h"

#include <sys/stat.h>

#include "checkpoint/checkpoints.h"

namespace nvfp4::checkpoint::model_folder_test {

const char* kSecond = "model-00002-of-00003.safetensors";

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

TEST_F(ModelFolderTest, AMissingOrTruncatedShardIsNamed) {
  write_tiny_llama(dir / "in");
  const fs::path shard = dir / "in" / kSecond;
  fs::resize_file(shard, fs::file_size(shard) - 1);
  expect_error<FormatError>([&] { open_model_folder(dir / "in"); }, {kSecond});
  fs::remove(shard);
  expect_error<IoError>([&] { open_model_folder(dir / "in"); }, {kSecond, "missing"});
}

TEST_F(ModelFolderTest, TheIndexAndTheShardsMustAgree) {
  write_tiny_llama(dir / "in");
  const fs::path path = dir / "in" / "model.safetensors.index.json";
  const auto index = safetensors::parse_index(read_text(path), "index");
  auto changed = index;
  changed.weight_map.erase("lm_head.weight");
  write_text(path, safetensors::index_json(changed));
  expect_error<FormatError>([&] { open_model_folder(dir / "in"); }, {"lm_head.weight", "index"});
  changed = index;
  changed.weight_map["ghost.weight"] = kSecond;
  write_text(path, safetensors::index_json(changed));
  expect_error<FormatError>([&] { open_model_folder(dir / "in"); }, {kSecond, "ghost.weight"});
  changed = index;
  changed.weight_map["lm_head.weight"] = kSecond;
  write_text(path, safetensors::index_json(changed));
  expect_error<FormatError>([&] { open_model_folder(dir / "in"); }, {"lm_head.weight", kSecond});
}

TEST_F(ModelFolderTest, ATensorInTwoShardsIsAnError) {
  fs::create_directories(dir / "in");
  for (const char* name : {"a.safetensors", "b.safetensors"})
    write_shard(dir / "in" / name, {random_tensor("x.weight", {16, 16})});
  expect_error<FormatError>([&] { open_model_folder(dir / "in"); },
                            {"b.safetensors", "x.weight", "a.safetensors"});
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

TEST_F(ModelFolderTest, RefusesWhatIsNoModel) {
  fs::create_directories(dir / "in");
  expect_error<IoError>([&] { open_model_folder(dir / "in"); }, {"no .safetensors"});
  expect_error<IoError>([&] { open_model_folder(dir / "none"); }, {"none"});
  write_text(dir / "x.txt", "x");
  expect_error<FormatError>([&] { open_model_folder(dir / "x.txt"); }, {"x.txt"});
  write_shard(dir / "in" / "model.safetensors", {random_tensor("x.weight", {16, 16})});
  fs::create_symlink("nowhere", dir / "in" / "tokenizer.json");
  expect_error<IoError>([&] { open_model_folder(dir / "in"); }, {"tokenizer.json"});
}

TEST_F(ModelFolderTest, IndexedShardMustBeSafetensors) {
  for (const std::string name : {"model.weights", "generation_config.json"}) {
    const TempDir dir;
    fs::create_directories(dir / "in");
    write_shard(dir / "in" / "model.safetensors", {random_tensor("x.weight", {16, 16})});
    write_shard(dir / "in" / name, {random_tensor("y.weight", {16, 16})});
    safetensors::Index index;
    index.weight_map = {{"x.weight", "model.safetensors"}, {"y.weight", name}};
    write_text(dir / "in" / "model.safetensors.index.json", safetensors::index_json(index));
    expect_error<FormatError>([&] { open_model_folder(dir / "in"); }, {"y.weight", name});
  }
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

TEST_F(ModelFolderTest, RefusesTheOutputOfAnInterruptedRun) {
  write_tiny_llama(dir / "in");
  write_text(dir / "in" / "nvfp4.partial.json", "{}");
  expect_error<FormatError>([&] { open_model_folder(dir / "in"); }, {"nvfp4.partial.json"});
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

TEST_F(ModelFolderTest, PipeIsAnError) {
  for (const std::string name : {"config.json", "model.safetensors.index.json"}) {
    const TempDir dir;
    write_tiny_llama(dir / "in");
    fs::remove(dir / "in" / name);
    ASSERT_EQ(::mkfifo((dir / "in" / name).c_str(), 0600), 0);
    expect_error<IoError>([&] { open_model_folder(dir / "in"); }, {name, "regular file"});
  }
}

}  // namespace nvfp4::checkpoint::model_folder_test
