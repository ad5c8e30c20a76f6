#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/gguf_models.h"

namespace nvfp4::gguf::drop_test {

/// Two layers in NVFP4, in folder "a".
void write_quantized(const TempDir& dir) {
  write_llama(dir / "source");
  quantize_checkpoint(dir / "source", dir / "a");
}

/// Returns options that convert folder "b" to GGUF.
ConvertOptions to_gguf(const TempDir& dir) {
  auto options = convert_options(dir / "b", dir / "m.gguf", "gguf");
  return options;
}

struct GgufDrop : FolderTest {};

/// A tensor without a place in llama.cpp is left out only on request.
TEST_F(GgufDrop, UnaskedDropNamesTheTensor) {
  write_quantized(dir);
  ConvertOptions options = to_gguf(dir);
  for (const std::string name :
       {"model.layers.0.self_attn.k_proj.k_scale", "model.layers.1.self_attn.v_proj.v_scale",
        "model.layers.2.input_layernorm.weight"}) {
    LoadedFolder model(dir / "a");
    model.shard_of("model.norm.weight")
        .push_back(name.ends_with("_scale") ? TestTensor{{name, safetensors::DType::f32, {}},
                                                         encode({2}, safetensors::DType::f32)}
                                            : random_tensor(name, {64}));
    model.write(dir / "b");
    for (const bool dry_run : {true, false}) {
      options.dry_run = dry_run;
      options.allow.drop = false;
      expect_error<UnsupportedError>([&] { convert_checkpoint(options); },
                                     {name, "llama.cpp has no place", "--allow drop"});
      EXPECT_FALSE(fs::exists(options.output));
      options.allow.drop = true;
      const auto warnings = convert_checkpoint(options).warnings;
      EXPECT_EQ(std::ranges::count_if(warnings,
                                      [&](const std::string& w) {
                                        return w.starts_with("1 tensors of ") &&
                                               w.find("left out") != w.npos;
                                      }),
                1)
          << testing::PrintToString(warnings);
    }
    EXPECT_TRUE(fs::exists(options.output));
    convert(options.output, dir / "back", "modelopt");
    const LoadedModel before(dir / "b"), after(dir / "back");
    EXPECT_EQ(after.tensors.size() + 1, before.tensors.size());
    fs::remove(options.output);
    fs::remove_all(dir / "back");
    fs::remove_all(dir / "b");
  }
  // Frequencies are computed from the configuration.
  LoadedFolder model(dir / "a");
  model.shard_of("model.norm.weight")
      .push_back(random_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", {8},
                               safetensors::DType::f32));
  model.write(dir / "b");
  options.allow.drop = false;
  EXPECT_NO_THROW(convert_checkpoint(options));
}

/// Without a count of layers none of them is for multi-token prediction.
TEST_F(GgufDrop, MissingLayerCountDropsNothing) {
  write_quantized(dir);
  ConvertOptions options = to_gguf(dir);
  options.allow.drop = true;
  const std::pair<Json, const char*> cases[] = {{nullptr, "block_count"},
                                                {"2", "block_count"},
                                                {0, "num_hidden_layers = 0"},
                                                {-1, "num_hidden_layers = -1"}};
  for (const auto& [layers, text] : cases) {
    fs::remove_all(dir / "b");
    fs::copy(dir / "a", dir / "b", fs::copy_options::recursive);
    Json config = Json::parse(read_text(dir / "b" / "config.json"));
    config["num_hidden_layers"] = layers;
    write_text(dir / "b" / "config.json", config.dump());
    expect_error<FormatError>([&] { convert_checkpoint(options); }, {text});
    EXPECT_FALSE(fs::exists(options.output));
  }
}

/// A factor of a gate, which the model needs.
TEST_F(GgufDrop, LearnedFactorIsNoCacheScale) {
  write_quantized(dir);
  const std::string name = "model.layers.0.mlp.k_scale";
  LoadedFolder model(dir / "a");
  model.shard_of("model.norm.weight").push_back(random_tensor(name, {64}));
  model.write(dir / "b");
  ConvertOptions options = to_gguf(dir);
  options.allow.drop = true;
  expect_error<Error>([&] { convert_checkpoint(options); }, {name});
}

/// Tensors that are left out do not become BF16.
TEST_F(GgufDrop, DroppedWeightsAreNotDequantized) {
  write_quantized(dir);
  LoadedFolder model(dir / "a");
  const std::string name = "model.layers.2.mlp.up_proj";  // there are layers 0 and 1
  append(model.shard_of("model.norm.weight"), mxfp4_matrix(name, 64, 96, 120, 127));
  model.write(dir / "b");
  ConvertOptions options = to_gguf(dir);
  expect_error<UnsupportedError>([&] { convert_checkpoint(options); },
                                 {name + ".weight", "of multi-token prediction", "--allow drop"});
  options.allow.drop = true;
  for (const std::string& warning : convert_checkpoint(options).warnings)
    EXPECT_THAT(warning, Not(HasSubstr("become BF16")));
  convert(options.output, dir / "back", "modelopt");
  EXPECT_EQ(LoadedModel(dir / "back").tensors.size(), LoadedModel(dir / "a").tensors.size());
}

/// Rows of NVFP4 that are no multiple of GGUF's blocks become BF16. So do embeddings, to which
/// llama.cpp applies no global scale. MXFP4 stays.
TEST_F(GgufDrop, WeightsThatGgufCannotHoldBecomeBf16) {
  Json config = llama_config();
  config["intermediate_size"] = 96;
  write_llama(dir / "plain", config);
  LoadedFolder narrow(dir / "plain");
  const std::string layers[] = {"model.layers.0.mlp.", "model.layers.1.mlp."};
  for (const std::string& layer : layers) {
    for (const char* name : {"gate_proj.weight", "up_proj.weight"})
      narrow.at(layer + name) = random_tensor(layer + name, {96, 64});
    narrow.at(layer + "down_proj.weight") = random_tensor(layer + "down_proj.weight", {64, 96});
  }
  narrow.write(dir / "source");
  quantize_checkpoint(dir / "source", dir / "a", {"--include", "model.embed_tokens"});
  LoadedFolder model(dir / "a");
  auto& shard = model.shard_of(layers[0] + "down_proj.weight");
  for (const char* end : {".weight", ".weight_scale", ".weight_scale_2", ".input_scale"})
    model.remove(layers[0] + "down_proj" + end);
  append(shard, mxfp4_matrix(layers[0] + "down_proj", 64, 96, 120, 127));
  model.write(dir / "b");
  const auto warnings = convert_checkpoint(to_gguf(dir)).warnings;
  for (const std::string warning :
       {"1 MXFP4 weights stay as they are (96 columns, not a multiple of 64): "
        "model.layers.0.mlp.down_proj",
        "1 NVFP4 weights become BF16, gguf cannot hold them (96 columns, not a multiple of 64): "
        "model.layers.1.mlp.down_proj",
        "1 NVFP4 weights become BF16, gguf cannot hold them (llama.cpp applies no global scale to "
        "it): model.embed_tokens"})
    EXPECT_THAT(warnings, testing::Contains(warning));
  EXPECT_EQ(File::open(dir / "m.gguf").find("blk.0.ffn_down.weight")->type->name, "MXFP4");
  convert(dir / "m.gguf", dir / "back", "modelopt");
  convert(dir / "b", dir / "bf16", "bf16");
  convert(dir / "b", dir / "nvfp4", "modelopt");
  const LoadedModel before(dir / "b"), after(dir / "back"), plain(dir / "bf16"),
      nvfp4(dir / "nvfp4");
  int copied = 0, dequantized = 0, stays = 0;
  for (const auto& [name, tensor] : after.tensors) {
    const bool mxfp4 = name.starts_with(layers[0] + "down_proj"),
               rest = name.find("down_proj") != name.npos || name.find("embed") != name.npos;
    EXPECT_EQ(tensor.bytes, (mxfp4 ? nvfp4 : rest ? plain : before).at(name).bytes) << name;
    ++(mxfp4 ? stays : rest ? dequantized : copied);
  }
  EXPECT_EQ(dequantized, 2);
  EXPECT_EQ(stays, 4);
  EXPECT_GT(copied, 40);
}

}  // namespace nvfp4::gguf::drop_test
