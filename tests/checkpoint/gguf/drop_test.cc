#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/gguf_models.h"

namespace nvfp4::gguf::drop_test {

struct GgufDrop : FolderTest {};

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
  const auto warnings = convert(dir / "b", dir / "m.gguf", "gguf").warnings;
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
