#include "checkpoint/model_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "checkpoint/expect_error.h"
#include "checkpoint/tiny_model.h"
#include "nvfp4/error.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

const char* kSecond = "model-00002-of-00003.safetensors";

TEST(ModelFolder, NamesShardsAndOtherFiles) {
  const TempDir dir;
  write_tiny_llama(dir / "in");
  const ModelFolder model = open_model_folder(dir / "in");
  EXPECT_EQ(model.file_names.size(), 3u);
  EXPECT_EQ(model.index_name, "model.safetensors.index.json");
  EXPECT_EQ(model.others,
            (std::vector<fs::path>{"assets/LICENSE", "modeling_llama.py", "tokenizer.json"}));
  EXPECT_TRUE(model.warnings.empty());
}

TEST(ModelFolder, LeavesOtherWeightFormatsAndHiddenFoldersBehindAndSaysSo) {
  const TempDir dir;
  write_tiny_llama(dir / "in");
  write_text(dir / "in" / "pytorch_model.bin", "x");
  write_text(dir / "in" / "extra.safetensors", "x");
  fs::create_directories(dir / "in" / ".git");
  write_text(dir / "in" / ".git" / "config", "x");
  const ModelFolder model = open_model_folder(dir / "in");
  EXPECT_EQ(model.others.size(), 3u);
  EXPECT_EQ(model.warnings.size(), 3u);
}

TEST(ModelFolder, AMissingOrTruncatedShardIsNamed) {
  const TempDir dir;
  write_tiny_llama(dir / "in");
  const fs::path shard = dir / "in" / kSecond;
  fs::resize_file(shard, fs::file_size(shard) - 1);
  expect_error<FormatError>([&] { open_model_folder(dir / "in"); }, {kSecond});
  fs::remove(shard);
  expect_error<IoError>([&] { open_model_folder(dir / "in"); }, {kSecond, "missing"});
}

TEST(ModelFolder, TheIndexAndTheShardsMustAgree) {
  const TempDir dir;
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

TEST(ModelFolder, ATensorInTwoShardsIsAnError) {
  const TempDir dir;
  fs::create_directories(dir / "in");
  for (const char* name : {"a.safetensors", "b.safetensors"})
    write_shard(dir / "in" / name, {random_tensor("x.weight", {16, 16})});
  expect_error<FormatError>([&] { open_model_folder(dir / "in"); },
                            {"b.safetensors", "x.weight", "a.safetensors"});
}

TEST(ModelFolder, ShardsWithoutAnIndexMustBeAllThere) {
  const TempDir dir;
  fs::create_directories(dir / "in");
  write_shard(dir / "in" / "model-00001-of-00002.safetensors",
              {random_tensor("x.weight", {16, 16})});
  expect_error<FormatError>([&] { open_model_folder(dir / "in"); }, {"1 of 2"});
  write_shard(dir / "in" / "model-00002-of-00002.safetensors",
              {random_tensor("y.weight", {16, 16})});
  EXPECT_EQ(open_model_folder(dir / "in").index_name, "model.safetensors.index.json");
}

TEST(ModelFolder, RefusesWhatIsNoModel) {
  const TempDir dir;
  fs::create_directories(dir / "in");
  expect_error<FormatError>([&] { open_model_folder(dir / "in"); }, {"no .safetensors"});
  expect_error<IoError>([&] { open_model_folder(dir / "none"); }, {"none"});
  write_text(dir / "x.txt", "x");
  expect_error<FormatError>([&] { open_model_folder(dir / "x.txt"); }, {"x.txt"});
  write_shard(dir / "in" / "model.safetensors", {random_tensor("x.weight", {16, 16})});
  write_text(dir / "in" / "hf_quant_config.json", "{}");
  expect_error<UnsupportedError>([&] { open_model_folder(dir / "in"); }, {"already quantized"});
  fs::remove(dir / "in" / "hf_quant_config.json");
  fs::create_symlink("nowhere", dir / "in" / "tokenizer.json");
  expect_error<IoError>([&] { open_model_folder(dir / "in"); }, {"tokenizer.json"});
}

TEST(ModelFolder, AShardOfTheIndexMustBeASafetensorsFile) {
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

TEST(ModelFolder, RefusesWeightsThatAreQuantizedAlready) {
  using enum safetensors::DType;
  const auto tensor = [](const std::string& name, safetensors::DType dtype) {
    return TestTensor{{name, dtype, {16, 16}}, std::vector<std::byte>(256)};
  };
  const std::vector<std::vector<TestTensor>> models = {
      {tensor("a.weight", u8), tensor("a.weight_scale", f8_e4m3)},
      {tensor("a.weight_packed", u8)},
      {tensor("a.weight", f8_e4m3), tensor("a.weight_scale_inv", f8_e4m3)},
  };
  for (const auto& tensors : models) {
    const TempDir dir;
    fs::create_directories(dir / "in");
    write_shard(dir / "in" / "model.safetensors", tensors);
    for (const fs::path& input : {dir / "in", dir / "in" / "model.safetensors"})
      expect_error<UnsupportedError>([&] { open_model_folder(input); },
                                     {tensors[0].spec.name, "already quantized"});
  }
  const TempDir dir;
  fs::create_directories(dir / "in");
  write_shard(dir / "in" / "model.safetensors",
              {tensor("a.weight", u8), tensor("b.weight_scale", f8_e4m3)});
  EXPECT_NO_THROW(open_model_folder(dir / "in"));
}

TEST(ModelFolder, RefusesTheOutputOfAnInterruptedRun) {
  const TempDir dir;
  write_tiny_llama(dir / "in");
  write_text(dir / "in" / "nvfp4.partial.json", "{}");
  expect_error<UnsupportedError>([&] { open_model_folder(dir / "in"); }, {"nvfp4.partial.json"});
}

TEST(ModelFolder, APipeInsteadOfAFileIsAnErrorNotAHang) {
  for (const std::string name : {"config.json", "model.safetensors.index.json"}) {
    const TempDir dir;
    write_tiny_llama(dir / "in");
    fs::remove(dir / "in" / name);
    ASSERT_EQ(::mkfifo((dir / "in" / name).c_str(), 0600), 0);
    expect_error<IoError>([&] { open_model_folder(dir / "in"); }, {name, "regular file"});
  }
}

}  // namespace
}  // namespace nvfp4::checkpoint
