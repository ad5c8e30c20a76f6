#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/gguf_models.h"
#include "checkpoint/gguf/names.h"
#include "checkpoint/gguf/tokenizer/tokenizer.h"
#include "checkpoint/safetensors/folder_names.h"
#include "checkpoint/source/model_folder.h"

/// Tests of links and other entries in a model folder, and of the remains of a failed run.
namespace nvfp4::checkpoint::model_links_test {

struct ModelLinks : FolderTest {};

TEST_F(ModelLinks, OnlyLinksToOwnBlobsAreFollowed) {
  const auto cache = [&](const char* name) { return dir / name; };
  write_tiny_llama(cache("models--a") / "snapshots" / "1");
  for (const char* name : {"models--a", "models--b"}) {
    fs::create_directories(cache(name) / "blobs");
    write_text(cache(name) / "blobs" / "5", "x");
  }
  const fs::path link = cache("models--a") / "snapshots" / "1" / "tokenizer.model";
  fs::create_symlink("../../blobs/5", link);
  EXPECT_NO_THROW(open_model_folder(link.parent_path()));
  fs::remove(link);
  fs::create_symlink("../../../models--b/blobs/5", link);
  expect_error<IoError>([&] { open_model_folder(link.parent_path()); }, {"tokenizer.model"});
}

TEST_F(ModelLinks, LinksBesideASingleFileAreRefused) {
  write_model(dir / "in", {{random_tensor("a.q_proj.weight", {32, 64})}}, "{}");
  write_text(dir / "secret", "{}");
  fs::create_symlink(dir / "secret", dir / "in" / "tokenizer.json");
  expect_error<IoError>(
      [&] {
        gguf::read_tokenizer(dir / "in", gguf::llama_config(), *gguf::find_architecture("llama"));
      },
      {"tokenizer.json: a link to"});
  for (const std::string name : {"hf_quant_config.json", "config.json"}) {
    fs::remove(dir / "in" / name);
    fs::create_symlink(dir / "secret", dir / "in" / name);
    expect_error<IoError>(
        [&] { quantize_checkpoint(dir / "in" / "model.safetensors", dir / "x" / "out"); },
        {name + ": a link to"});
    EXPECT_FALSE(fs::exists(dir / "x"));
    fs::remove(dir / "in" / name);
    write_text(dir / "in" / "config.json", "{}");
  }
}

TEST_F(ModelLinks, FailedRunLeavesNoFolder) {
  gguf::write_llama(dir / "in");
  auto options = quantize_options(dir / "in", dir / "x" / "y" / "m.gguf", {"--format", "gguf"});
  options.progress = [](const Progress&) { throw ValueError("stop"); };
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"stop"});
  EXPECT_FALSE(fs::exists(dir / "x"));
  options.progress = {};
  quantize_checkpoint(options);
  EXPECT_TRUE(fs::exists(options.output));
}

TEST(ModelFolders, CachesAreLeftOutAndDepthIsLimited) {
  const TempDir dir;
  write_tiny_llama(dir / "in");
  for (const char* name : {".git", ".hidden", "__pycache__", "assets/.ipynb_checkpoints"}) {
    fs::create_directories(dir / "in" / name);
    write_text(dir / "in" / name / "f", "x");
  }
  const ModelFolder model = open_model_folder(dir / "in");
  EXPECT_EQ(model.others.size(), 3u);
  EXPECT_EQ(model.warnings.size(), 4u);
  const QuantizeReport report = quantize_checkpoint(dir / "in", dir / "out");
  EXPECT_EQ(report.carried_files, 3);
  EXPECT_EQ(report.carried_bytes, 18u + 13u + 5u);
  fs::path deep = dir / "in";
  for (int i = 0; i < 100; ++i) deep /= "d";
  fs::create_directories(deep);
  expect_error<FormatError>([&] { open_model_folder(dir / "in"); }, {"more than 64 folders deep"});
}

/// A file of 1 TB that is one hole: its rows are not what could be held in memory.
TEST(ModelFolders, TensorOfAbsurdRowsIsExcluded) {
  const TempDir dir;
  const std::uint64_t bytes = std::uint64_t{1} << 40;
  std::string header = R"({"a.q_proj.weight":{"dtype":"BF16","shape":[1,549755813888],)"
                       R"("data_offsets":[0,1099511627776]}})";
  header.resize(header.size() + (8 - header.size() % 8) % 8, ' ');
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  fs::create_directories(dir / "in");
  write_text(dir / "in" / "model.safetensors", file + header);
  write_text(dir / "in" / "config.json", "{}");
  std::error_code too_large;
  fs::resize_file(dir / "in" / "model.safetensors", 8 + header.size() + bytes, too_large);
  if (too_large) GTEST_SKIP() << "the file system has no such files";
  expect_error<UnsupportedError>(
      [&] { quantize_checkpoint(dir / "in", dir / "out", {"--dry-run"}); },
      {"no tensor can be quantized", "549755813888 columns"});
}

}  // namespace nvfp4::checkpoint::model_links_test
