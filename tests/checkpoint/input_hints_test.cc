#include <sys/stat.h>

#include "checkpoint/checkpoints.h"
#include "checkpoint/compare/shared_work.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/source/model_folder.h"

/// Inputs that are almost what is meant.
namespace nvfp4::checkpoint::input_hints_test {

void quantize(const fs::path& in, const fs::path& out) { quantize_checkpoint(in, out); }

struct InputHints : FolderTest {};

TEST_F(InputHints, PicklesAreNamedWithTheConvertingCommand) {
  fs::create_directories(dir / "it's");
  write_text(dir / "it's" / "pytorch_model.bin", "x");
  const std::string quoted = fmt::format("'{}/it'\\''s'", dir.path().string());
  expect_error<IoError>([&] { quantize(dir / "it's", dir / "out"); },
                        {"holds no .safetensors file, but pytorch_model.bin, a pickle",
                         "-c \"import sys; sys.path.pop(0); import transformers as t;",
                         "save_pretrained(p)\" " + quoted});
  expect_error<IoError>([&] { compare_checkpoints(dir / "it's", dir / "it's"); },
                        {"pytorch_model.bin, a pickle"});
  for (const char* name : {"m.bin", "m.pt", "m.pth", "m.ckpt"}) {
    write_text(dir / name, "x");
    expect_error<FormatError>(
        [&] { quantize(dir / name, dir / "out"); },
        {name, "a .safetensors or a .gguf file", "-c \"import sys; sys.path.pop(0); import torch;",
         "save_file", "m.safetensors'"});
  }
  write_text(dir / "m.txt", "x");
  expect_error<FormatError>([&] { quantize(dir / "m.txt", dir / "out"); }, {"m.txt: must be"});
}

TEST_F(InputHints, APipelineOfDiffusersNamesItsParts) {
  const fs::path root = dir / "flux";
  for (const char* part : {"transformer", "text_encoder", "scheduler"})
    fs::create_directories(root / part);
  write_text(root / "model_index.json", "{}");
  write_text(root / "scheduler" / "scheduler_config.json", "{}");
  write_shard(root / "transformer" / "diffusion_pytorch_model.safetensors",
              {random_tensor("blocks.0.attn.to_q.weight", {64, 64})});
  write_text(root / "transformer" / "config.json", "{}");
  write_shard(root / "text_encoder" / "model.safetensors",
              {random_tensor("layer.q_proj.weight", {64, 64})});
  try {
    quantize(root, dir / "out");
    FAIL();
  } catch (const IoError& e) {
    const std::string text = e.what(), both = (root / "text_encoder").string() + ", " +
                                              (root / "transformer").string();
    EXPECT_THAT(text, HasSubstr("a pipeline of diffusers"));
    EXPECT_TRUE(text.ends_with("name one of them: " + both)) << text;
  }
  quantize(root / "transformer", dir / "out");  // so the hint works
}

/// Creates a cache with the layout of huggingface_hub: links into ../../blobs.
fs::path make_cache(const fs::path& root, const std::string& revision) {
  const fs::path snapshot = root / "snapshots" / revision;
  write_tiny_llama(snapshot);
  fs::create_directories(root / "blobs");
  fs::create_directories(root / "refs");
  for (const char* name : {"config.json", "model-00001-of-00003.safetensors"}) {
    const std::string blob = revision + name;
    fs::rename(snapshot / name, root / "blobs" / blob);
    fs::create_symlink(fs::path("../../blobs") / blob, snapshot / name);
  }
  return snapshot;
}

TEST_F(InputHints, HubCacheRootIsItsSnapshot) {
  const fs::path root = dir / "hub" / "models--org--tiny";
  const fs::path first = make_cache(root, "0123abc");
  EXPECT_EQ(model_path(root), first);
  EXPECT_EQ(model_path(dir / "hub"), first);
  EXPECT_EQ(model_path(first), first);
  quantize(root, dir / "a");
  quantize(first, dir / "b");
  EXPECT_EQ(files_of(dir / "a"), files_of(dir / "b"));
  EXPECT_EQ(compare_checkpoints(root, first).identical, 21);
  auto verify = verify_options(dir / "a", root);
  EXPECT_FALSE(verify_checkpoint(verify).broken());
  verify.path = root;
  verify.source.reset();
  EXPECT_EQ(verify_checkpoint(verify).tensors, 21);

  const fs::path second = make_cache(root, "4567def");
  expect_error<FormatError>([&] { model_path(root); },
                            {"2 snapshots", "name one", "0123abc", "4567def"});
  write_text(root / "refs" / "main", "4567def");
  EXPECT_EQ(model_path(root), second);
  fs::remove(root / "refs" / "main");
  ASSERT_EQ(::mkfifo((root / "refs" / "main").c_str(), 0600), 0);
  expect_error<IoError>([&] { model_path(root); }, {"main", "must be a regular file"});
  make_cache(dir / "hub" / "models--org--other", "89");
  expect_error<FormatError>([&] { model_path(dir / "hub"); },
                            {"2 models, name one", "models--org--other"});
  EXPECT_EQ(model_path(dir / "nowhere"), dir / "nowhere");
}

/// The path of the address would be a folder of that name. "s3:/bucket" is the form of Python's
/// pathlib.
TEST_F(InputHints, AddressesOfStoresAreNoPaths) {
  write_tiny_llama(dir / "in");
  for (const std::string address : {"s3://bucket/model", "gs://b/m", "https://host/m",
                                    "S3://bucket/model", "git+ssh://h/m", "s3:/bucket/model"}) {
    const std::initializer_list<std::string_view> words = {address, "is an address"};
    expect_error<UnsupportedError>([&] { quantize(address, dir / "out"); }, words);
    expect_error<UnsupportedError>([&] { quantize(dir / "in", address); }, words);
    for (const std::string format : {"gguf", "comfyui"}) {
      auto one_file = quantize_options(dir / "in", address + ".gguf", {"--format", format});
      for (const bool dry_run : {true, false}) {
        one_file.dry_run = dry_run;
        expect_error<UnsupportedError>([&] { quantize_checkpoint(one_file); }, words);
      }
    }
    SampleOptions sample;
    sample.output = address;
    expect_error<UnsupportedError>([&] { sample_checkpoint(sample); }, words);
    expect_error<UnsupportedError>(
        [&] {
          compare_share(dir / "in", dir / "in", {0, 2, address});
        },
        words);
    EXPECT_FALSE(fs::exists(address.substr(0, address.find('/'))));
  }
  for (const char* path : {"C:/models/m", "./s3:/bucket/m", "a/b://c", "://m", "1:/m"})
    EXPECT_NO_THROW(require_no_address(path)) << path;
}

TEST_F(InputHints, OneShardIsNotTheModel) {
  write_tiny_llama(dir / "in");
  const char* shard = "model-00001-of-00003.safetensors";
  for (const char* name : {shard, "part.safetensors"}) {
    fs::rename(dir / "in" / shard, dir / "in" / name);
    std::string index = read_text(dir / "in" / "model.safetensors.index.json");
    for (std::size_t at; (at = index.find(shard)) != index.npos && shard != name;)
      index.replace(at, std::string_view(shard).size(), name);
    write_text(dir / "in" / "model.safetensors.index.json", index);
    const fs::path out = dir / ("out-" + std::string(name));
    const QuantizeReport report = quantize_checkpoint(dir / "in" / name, out);
    ASSERT_FALSE(report.warnings.empty());
    EXPECT_THAT(report.warnings[0], HasSubstr("one shard of several"));
    EXPECT_THAT(read_text(out / "config.json"), Not(HasSubstr("hidden_size")));
  }
}

}  // namespace nvfp4::checkpoint::input_hints_test
