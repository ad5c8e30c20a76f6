#include "checkpoint/checkpoints.h"

/// Conversions to and from ComfyUI, and of DeepSeek-V4.
namespace nvfp4::convert_forms_test {

using enum safetensors::DType;

struct ComfyUi : FolderTest {};

/// Three shards; k_proj has 32 rows, less than a tile.
TEST_F(ComfyUi, HasHighNibblesFirstAndTiledScales) {
  write_tiny_llama(dir / "source");
  quantize_checkpoint(dir / "source", dir / "a");
  convert(dir / "a", dir / "b", "comfyui");
  EXPECT_TRUE(fs::exists(dir / "b" / "model.safetensors"));
  EXPECT_FALSE(fs::exists(dir / "b" / "model.safetensors.index.json"));
  EXPECT_FALSE(LoadedFolder(dir / "b").config.contains("quantization_config"));
  const LoadedModel a(dir / "a"), b(dir / "b");
  for (const std::string name : {"model.layers.0.self_attn.k_proj", "model.layers.1.mlp.up_proj"}) {
    const auto& codes = a.at(name + ".weight");
    const auto& scales = a.at(name + ".weight_scale");
    const auto& tiles = b.at(name + ".weight_scale");
    const std::int64_t rows = scales.shape[0], blocks = scales.shape[1];
    EXPECT_EQ(tiles.shape, (std::vector<std::int64_t>{128, 4}));
    std::size_t filled = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t k = 0; k < blocks; ++k, ++filled)
        EXPECT_EQ(tiles.bytes[static_cast<std::size_t>(
                      scale_offset(ScaleLayout::tiled_128x4, r, k, rows, blocks))],
                  scales.bytes[static_cast<std::size_t>(r * blocks + k)]);
    EXPECT_GE(static_cast<std::size_t>(std::ranges::count(tiles.bytes, std::byte{0})),
              tiles.bytes.size() - filled)
        << "padding is zero";
    for (std::size_t i = 0; i < codes.bytes.size(); ++i)
      EXPECT_EQ(b.at(name + ".weight").bytes[i], codes.bytes[i] << 4 | codes.bytes[i] >> 4);
    const auto& marker = b.at(name + ".comfy_quant").bytes;
    const std::string text(reinterpret_cast<const char*>(marker.data()), marker.size());
    EXPECT_EQ(nlohmann::json::parse(text).at("format"), "nvfp4");
  }
  EXPECT_EQ(compare_checkpoints(dir / "a", dir / "b").tensors.size(), 0u) << "the same values";
  EXPECT_EQ(findings_of(dir / "b"), "");
  convert(dir / "b", dir / "c", "modelopt");
  expect_same_tensors(dir / "a", dir / "c");
  convert(dir / "c", dir / "d", "comfyui");
  expect_same_tensors(dir / "b", dir / "d");

  quantize_checkpoint(dir / "source", dir / "q", {"--format", "comfyui"});
  expect_same_tensors(dir / "b", dir / "q");
}

/// FLUX.2 as Black Forest Labs publish it: no marker beside a weight, but metadata of the file.
TEST_F(ComfyUi, OneFileWhoseMetadataSaysHow) {
  write_tiny_llama(dir / "source");
  quantize_checkpoint(dir / "source", dir / "a");
  convert(dir / "a", dir / "b", "comfyui");
  LoadedFolder model(dir / "b");
  auto& tensors = model.shards.at("model.safetensors");
  std::erase_if(tensors, [](const TestTensor& t) { return t.spec.name.ends_with(".comfy_quant"); });
  const fs::path file = dir / "flux.safetensors";
  write_shard(file, tensors,
              {{"_quantization_metadata", R"({"layers": {"x": {"format": "nvfp4"}}})"}});
  InspectOptions inspect;
  inspect.path = file;
  EXPECT_EQ(inspect_checkpoint(inspect).format, "comfyui");
  EXPECT_EQ(compare_checkpoints(dir / "a", file).tensors.size(), 0u) << "the same values";
  for (const std::string to : {"modelopt", "compressed-tensors"}) {
    convert(file, dir / to, to);
    inspect.path = dir / to;
    EXPECT_EQ(inspect_checkpoint(inspect).format, to) << "it says no more what it was";
    EXPECT_EQ(compare_checkpoints(dir / "a", dir / to).max_error, 0);
  }
  expect_same_tensors(dir / "a", dir / "modelopt");
  convert(file, dir / "c", "comfyui");
  expect_same_tensors(dir / "b", dir / "c");
}

TEST_F(ComfyUi, Fp8BesideItHasItsOwnMarker) {
  write_model(dir / "source", {{random_tensor("m.weight", {32, 64})}}, kLlamaConfig);
  quantize_checkpoint(dir / "source", dir / "a");
  convert(dir / "a", dir / "b", "comfyui");
  LoadedFolder model(dir / "b");
  auto& tensors = model.shards.at("model.safetensors");
  append(tensors, fp8_weight("n", 32, 64, ".weight_scale", {}, 32, 64));
  model.set_scalar("n.weight_scale", 0x1p-9f);  // for BF16 to hold the products
  const std::string marker = R"({"format": "float8_e4m3fn"})";
  std::vector<std::byte> bytes(marker.size());
  std::memcpy(bytes.data(), marker.data(), marker.size());
  tensors.push_back({{"n.comfy_quant", u8, {static_cast<std::int64_t>(bytes.size())}}, bytes});
  model.write(dir / "c");
  convert(dir / "c", dir / "d", "modelopt");
  const LoadedModel c(dir / "c"), d(dir / "d");
  EXPECT_EQ(d.at("n.weight").bytes, c.at("n.weight").bytes);
  EXPECT_FALSE(d.has("n.comfy_quant"));
  EXPECT_EQ(findings_of(dir / "d"), "");
  convert(dir / "d", dir / "e", "comfyui");
  expect_same_tensors(dir / "c", dir / "e");
  convert(dir / "e", dir / "f", "modelopt");
  EXPECT_EQ(files_of(dir / "d"), files_of(dir / "f"));
  convert(dir / "f", dir / "g", "comfyui");
  EXPECT_EQ(files_of(dir / "e"), files_of(dir / "g"));
}

TEST(Quark, GlobalScalesMayBeBf16) {
  for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16}) {
    const TempDir dir;
    write_tiny_llama(dir / "source");
    quantize_checkpoint(dir / "source", dir / "a", {"--scheme", scheme});
    LoadedFolder a(dir / "a"), quark(dir / "a");
    for (auto& [file, tensors] : quark.shards)
      for (TestTensor& t : tensors) {
        const bool global = t.spec.name.ends_with(".weight_scale_2");
        if (t.spec.name.ends_with(".input_scale")) t.spec.name += "_2";
        if (!global) continue;
        const float rounded = BF16::from_float(quark.scalar(t.spec.name)).to_float();
        a.set_scalar(t.spec.name, rounded);
        t = {{t.spec.name, bf16, {}}, encode({rounded}, bf16)};
      }
    quark.quantization() = {{"quant_method", "quark"}, {"exclude", {"lm_head"}}};
    quark.hf_quant = nullptr;
    quark.write(dir / "quark");
    fs::remove_all(dir / "a");
    a.write(dir / "a");
    convert(dir / "quark", dir / "b", "modelopt");
    expect_same_tensors(dir / "a", dir / "b");
    EXPECT_EQ(findings_of(dir / "quark"), "");
  }
}

/// Two layers' experts, shared experts and attention in FP8, a head, and multi-token prediction.
void write_deepseek_v4(const fs::path& folder, bool predicts = true) {
  std::vector<std::vector<TestTensor>> shards(2);
  const auto fp8 = [](const std::string& name) {
    PackedWeight w = fp8_weight(name, 128, 256, ".scale", {1, 2}, 128, 128);
    w.tensors[1].spec.dtype = f8_e8m0;
    w.tensors[1].bytes = {std::byte{118}, std::byte{120}};
    return w;
  };
  for (const std::size_t layer : {0, 1}) {
    const std::string p = "layers." + std::string(layer == 0 ? "0" : "1") + ".";
    for (const char* e : {"0.", "1."}) {
      const std::string expert = p + "ffn.experts." + e;
      append(shards[layer], mxfp4_matrix(expert + "w1", 64, 64, 108, 118));
      append(shards[1 - layer], mxfp4_matrix(expert + "w3", 64, 64, 112, 121));
      append(shards[layer], mxfp4_matrix(expert + "w2", 64, 64, 110, 120));
    }
    append(shards[layer], fp8(p + "attn.wq_a"));
    append(shards[layer], fp8(p + "ffn.shared_experts.w1"));
    shards[layer].push_back(random_tensor(p + "ffn.gate.weight", {2, 64}));
    shards[layer].push_back(random_tensor(p + "attn_norm.weight", {64}));
  }
  if (predicts) {
    append(shards[1], mxfp4_matrix("mtp.0.ffn.experts.0.w1", 64, 64, 110, 120));
    append(shards[1], fp8("mtp.0.attn.wq_a"));
  }
  shards[1].push_back(random_tensor("head.weight", {96, 64}));
  write_model(folder, shards,
              "{\"model_type\": \"deepseek_v4\", \"hidden_size\": 64, \"swiglu_limit\": 10.0, "
              "\"num_hash_layers\": 3, \"num_nextn_predict_layers\": 1, \"quantization_config\": "
              "{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"scale_fmt\": \"ue8m0\", "
              "\"weight_block_size\": [128, 128]}}\n");
  write_text(folder / "tokenizer.json", "{\"version\": \"1.0\"}");
  write_text(folder / "generation_config.json", "{\"temperature\": 1.0}\n");
  fs::create_directories(folder / "encoding");
  write_text(folder / "encoding" / "encoding_dsv4.py", "import json\n");
}

TEST(DeepSeekV4, OnlyTheExpertsChange) {
  const TempDir dir;
  write_deepseek_v4(dir / "a");
  convert(dir / "a", dir / "b", "modelopt");
  const LoadedModel a(dir / "a"), b(dir / "b");
  for (const auto& [name, t] : a.tensors) {
    if (name.starts_with("layers.") && name.find(".experts.") != name.npos) continue;
    ASSERT_TRUE(b.has(name)) << name;
    EXPECT_EQ(b.at(name).bytes, t.bytes) << name;
    EXPECT_EQ(b.at(name).dtype, t.dtype) << name;
  }
  for (const std::string p : {"layers.0.ffn.experts.1.", "layers.1.ffn.experts.0."}) {
    EXPECT_EQ(b.scalar(p + "w1.weight_scale_2"), b.scalar(p + "w3.weight_scale_2"));
    EXPECT_EQ(b.scalar(p + "w3.weight_scale_2"), std::ldexp(1.0f, 121 - 127 - 8));
    EXPECT_TRUE(b.has(p + "w2.input_scale"));
    EXPECT_FALSE(b.has(p + "w2.scale"));
  }
  EXPECT_EQ(compare_checkpoints(dir / "a", dir / "b").relative_error, 0);
  LoadedFolder out(dir / "b");
  EXPECT_EQ(out.shards.size(), 2u) << "the shards stay";
  const auto& config = out.quantization();
  EXPECT_EQ(config["quant_method"], "fp8");
  EXPECT_EQ(config["scale_fmt"], "ue8m0") << "what was there stays";
  EXPECT_EQ(config["moe_quant_algo"], "NVFP4");
  EXPECT_EQ(config["quant_algo"], "MIXED_PRECISION");
  EXPECT_EQ(config["group_size"], 16);
  EXPECT_EQ(config["ignore"],
            (std::vector<std::string>{"*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"}));
  EXPECT_EQ(config["quantized_layers"].size(), 2u);
  EXPECT_EQ(config["quantized_layers"]["layers.1.ffn.experts"]["quant_algo"], "NVFP4");
  EXPECT_TRUE(out.hf_quant.is_null());
  EXPECT_EQ(out.config["swiglu_limit"], 10.0);
  EXPECT_EQ(out.config["num_hash_layers"], 3);
  EXPECT_EQ(out.config["num_nextn_predict_layers"], 1);
  for (const char* file : {"tokenizer.json", "generation_config.json", "encoding/encoding_dsv4.py"})
    EXPECT_EQ(read_text(dir / "b" / file), read_text(dir / "a" / file));
  const auto index =
      safetensors::parse_index(read_text(dir / "b" / "model.safetensors.index.json"), "index");
  EXPECT_EQ(index.weight_map.size(), b.tensors.size());
  EXPECT_EQ(index.weight_map.at("layers.1.ffn.experts.0.w3.weight_scale_2"),
            "model-00001-of-00002.safetensors")
      << "in the shard of its codes";
  EXPECT_EQ(findings_of(dir / "b"), "");

  quantize_checkpoint(dir / "a", dir / "q");
  expect_same_tensors(dir / "b", dir / "q");
  convert(dir / "b", dir / "plain", "bf16");
  EXPECT_EQ(compare_checkpoints(dir / "a", dir / "plain").only_in_a.size(), 0u);
}

/// Also where nothing is MXFP4 any more.
TEST(DeepSeekV4, IsItselfAgainWhenItIsNvfp4) {
  for (const bool predicts : {false, true}) {
    const TempDir dir;
    write_deepseek_v4(dir / "a", predicts);
    convert(dir / "a", dir / "b", "modelopt");
    convert(dir / "b", dir / "c", "modelopt");
    expect_same_tensors(dir / "b", dir / "c");
    EXPECT_EQ(LoadedFolder(dir / "c").config, LoadedFolder(dir / "b").config);
    LoadedFolder model(dir / "b");
    model.remove("layers.0.ffn.experts.0.w2.input_scale");
    model.write(dir / "bad");
    EXPECT_FALSE(repair_checkpoint(repair_options(dir / "bad", dir / "repaired")).after.broken());
    expect_same_tensors(dir / "b", dir / "repaired");
    EXPECT_EQ(LoadedFolder(dir / "repaired").config, LoadedFolder(dir / "b").config);
  }
}

}  // namespace nvfp4::convert_forms_test
