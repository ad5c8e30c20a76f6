#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/gguf_models.h"

/// Conversions there and back, compared as files: docs/conversions.md says what must be equal.
namespace nvfp4::there_and_back_test {

using Files = std::map<std::string, std::string>;

/// A folder, or the one file of GGUF, which takes no card along.
Files model_files(const fs::path& path) {
  if (!fs::is_directory(path)) return {{"", read_text(path)}};
  Files files = files_of(path);
  files.erase("README.md");
  files.erase("nvfp4.files.json");
  return files;
}

void expect_same_files(const Files& a, const Files& b) {
  for (const auto& [name, content] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_TRUE(content == b.at(name)) << name << " differs";
  }
  EXPECT_EQ(a.size(), b.size());
}

/// Expects the same tensors and keys, except those that come from the folder's name and files.
void expect_same_gguf(const fs::path& a, const fs::path& b) {
  const gguf::File x = gguf::File::open(a), y = gguf::File::open(b);
  EXPECT_EQ(x.header().tensors.size(), y.header().tensors.size());
  for (const gguf::TensorInfo& t : x.header().tensors)
    EXPECT_TRUE(gguf::bytes_of(x, t.name) == gguf::bytes_of(y, t.name)) << t.name;
  for (const gguf::Entry& entry : x.header().entries) {
    if (entry.key.starts_with("general.")) continue;
    const auto& all = y.header().entries;
    const auto same = std::ranges::find(all, entry.key, &gguf::Entry::key);
    ASSERT_NE(same, all.end()) << entry.key;
    EXPECT_EQ(x.raw(entry), y.raw(*same)) << entry.key;
  }
}

/// One shard; tensors of every width in no order, biases, F32 norms, experts that are not in
/// their order.
void write_mixed(const fs::path& folder, const safetensors::Metadata& metadata) {
  using enum safetensors::DType;
  gguf::write_qwen3_moe(folder);
  std::vector<TestTensor> tensors;
  {
    const auto file = safetensors::File::open(folder / "model.safetensors");
    for (const auto& t : file.tensors()) {
      tensors.push_back({{t.name, t.dtype, t.shape}, std::vector<std::byte>(t.bytes)});
      file.read(t, 0, tensors.back().bytes);
    }
  }
  tensors.push_back(random_tensor("model.layers.0.self_attn.q_proj.bias", {64}, f32));
  tensors.push_back(random_tensor("model.layers.0.self_attn.k_proj.bias", {64}));
  std::shuffle(tensors.begin(), tensors.end(), std::mt19937(11));
  write_shard(folder / "model.safetensors", tensors, metadata);
  write_text(folder / "generation_config.json", "{\"temperature\": 1.0}\n");
}

/// Global scales, input scales too, become any float; they stay equal where they were.
void scatter_scales(const fs::path& folder) {
  std::mt19937 random(7);
  std::map<std::uint32_t, float> changed;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::string content = read_text(entry.path());
    const auto file = safetensors::File::open(entry.path());
    for (const auto& t : file.tensors()) {
      const bool scale = t.dtype == safetensors::DType::f32 && t.bytes == 4;
      if (!scale || t.name.find("scale") == std::string::npos) continue;
      std::uint32_t bits;
      std::memcpy(&bits, content.data() + t.begin, 4);
      const float value = bits_float(bits) * std::uniform_real_distribution<float>(1, 2)(random);
      std::memcpy(content.data() + t.begin, &changed.try_emplace(bits, value).first->second, 4);
    }
    write_text(entry.path(), content);
  }
}

fs::path output(const TempDir& dir, const std::string& name, const std::string& form) {
  return dir / (form == "gguf" ? name + ".gguf" : name);
}

/// The source quantized, converted and converted back, and again; `lost` does not come back.
void expect_the_same(const TempDir& dir, const std::string& from, const std::string& to,
                     const std::string& recipe, const std::vector<std::string>& lost = {}) {
  SCOPED_TRACE(fmt::format("{} > {}, {}", from, to, recipe));
  const TempDir out;
  auto options = quantize_options(dir / "source", out / "quantized");
  options.format = from == "gguf" ? "modelopt" : from;  // a folder, where scales can be changed
  options.recipe = recipe;
  quantize_checkpoint(options);
  scatter_scales(options.output);
  const fs::path a = from == "gguf" ? output(out, "a", from) : options.output;
  const fs::path b = output(out, "b", to), c = output(out, "c", from), d = output(out, "d", to);
  if (from == "gguf") convert(options.output, a, from);
  convert(a, b, to);
  convert(b, c, from);
  convert(c, d, to);
  Files first = model_files(a);
  for (const std::string& name : lost) EXPECT_EQ(first.erase(name), 1u) << name;
  if (from == "gguf" && to != from)
    expect_same_gguf(a, c);
  else
    expect_same_files(first, model_files(c));
  if (to == "gguf" && to != from)
    expect_same_gguf(b, d);
  else
    expect_same_files(model_files(b), model_files(d));
}

/// W4A4, W4A16, and both in one checkpoint.
struct ThereAndBack : FolderTest {
  const std::vector<std::string> recipes = {"all", "w4a16", (dir / "both.yaml").string()};
  ThereAndBack() { write_text(dir / "both.yaml", "rules:\n- {kind: attention, action: w4a16}\n"); }
};

TEST_F(ThereAndBack, OneShardGivesTheSameFiles) {
  write_mixed(dir / "source", {{"format", "mlx"}, {"made by", "na\xC3\xAFve \"quotes\""}});
  const std::string forms[] = {"modelopt", "compressed-tensors", "comfyui", "gguf"};
  for (const std::string& from : forms)
    for (const std::string& to : forms)
      for (const std::string& recipe : recipes) {
        const bool folder_to_file = to == "gguf" && from != "gguf";
        expect_the_same(dir, from, to, recipe,
                        folder_to_file ? std::vector<std::string>{"generation_config.json"}
                                       : std::vector<std::string>{});
      }
}

TEST_F(ThereAndBack, SeveralShardsGiveTheSameFiles) {
  write_tiny_llama(dir / "source");
  const std::string forms[] = {"modelopt", "compressed-tensors"};
  for (const std::string& from : forms)
    for (const std::string& to : forms)
      for (const std::string& recipe : recipes) expect_the_same(dir, from, to, recipe);
}

/// FP8 beside NVFP4, and what says that the cache is FP8.
TEST_F(ThereAndBack, MixedPrecisionGivesTheSameFiles) {
  gguf::write_qwen3_moe(dir / "source");
  quantize_checkpoint(dir / "source", dir / "q");
  LoadedFolder model(dir / "q");
  const std::string z = "model.layers.0.mlp.z_proj", b = "model.layers.0.mlp.b_proj";
  auto& tensors = model.shards.begin()->second;
  append(tensors, fp8_weight(z, 32, 64, ".weight_scale", {}, 32, 64));
  append(tensors, fp8_weight(b, 32, 64, ".weight_scale", {32, 1}, 1, 64));
  model.hf_quant["quantization"]["kv_cache_quant_algo"] = "FP8";
  model.quantization()["kv_cache_scheme"] = {
      {"dynamic", false}, {"num_bits", 8}, {"type", "float"}};
  std::shuffle(tensors.begin(), tensors.end(), std::mt19937(5));
  model.write(dir / "foreign");
  convert(dir / "foreign", dir / "a", "modelopt");
  convert(dir / "a", dir / "b", "compressed-tensors");
  convert(dir / "b", dir / "c", "modelopt");
  convert(dir / "c", dir / "d", "compressed-tensors");
  expect_same_files(model_files(dir / "a"), model_files(dir / "c"));
  expect_same_files(model_files(dir / "b"), model_files(dir / "d"));
  EXPECT_EQ(LoadedFolder(dir / "c").quantization()["kv_cache_scheme"]["num_bits"], 8);
  EXPECT_EQ(LoadedFolder(dir / "c").quantization()["quant_algo"], "MIXED_PRECISION");
}

/// Whatever somebody else wrote there.
TEST_F(ThereAndBack, GgufMetadataIsItsText) {
  gguf::write_llama(dir / "source");
  quantize_checkpoint(dir / "source", dir / "a");
  convert(dir / "a", dir / "m.gguf", "gguf");
  const gguf::File m = gguf::File::open(dir / "m.gguf");
  ASSERT_NE(m.header().text("nvfp4.metadata"), nullptr);
  const auto kept = nlohmann::json::parse(*m.header().text("nvfp4.metadata"));
  EXPECT_EQ(kept.size(), 1u) << "nothing to keep";
  EXPECT_TRUE(kept.contains("nvfp4_cpp"));
  std::vector<gguf::NewEntry> entries;
  for (const gguf::Entry& e : m.header().entries)
    if (e.value.type != gguf::ValueType::array && e.key != "nvfp4.metadata")
      entries.push_back({e.key, {.type = e.value.type, .value = e.value.value}});
  std::vector<gguf::TensorSpec> specs;
  for (const gguf::TensorInfo& t : m.header().tensors) specs.push_back({t.name, t.type, t.shape});
  entries.push_back({"nvfp4.metadata", {}});
  for (const char* text : {R"({"note": "y", "k": 1, "_quantization_metadata": "{}"})", "[1", "3"}) {
    entries.back().value = gguf::new_text(text);
    gguf::Writer writer(dir / "n.gguf", entries, specs);
    for (std::size_t i = 0; i < specs.size(); ++i)
      writer.write(i, 0, gguf::bytes_of(m, specs[i].name));
    writer.commit();
    fs::remove_all(dir / "b");
    convert(dir / "n.gguf", dir / "b", "modelopt");
    safetensors::Metadata expected = {{"format", "pt"}};
    if (text[0] == '{') expected["note"] = "y";
    EXPECT_EQ(safetensors::File::open(dir / "b" / "model.safetensors").metadata(), expected);
    const LoadedModel a(dir / "a"), b(dir / "b");
    const std::string codes = "model.layers.1.mlp.up_proj.weight";
    EXPECT_EQ(a.at(codes).bytes, b.at(codes).bytes) << text;
  }
}

/// The order is that of safetensors' own writer.
TEST_F(ThereAndBack, TensorsAreOrderedByWidthAndName) {
  write_mixed(dir / "source", {});
  quantize_checkpoint(dir / "source", dir / "a");
  const auto file = safetensors::File::open(dir / "a" / "model.safetensors");
  const auto key = [](const safetensors::TensorInfo& t) {
    return std::pair(-safetensors::dtype_bits(t.dtype), t.name);
  };
  const auto& tensors = file.tensors();
  for (std::size_t i = 1; i < tensors.size(); ++i) EXPECT_LT(key(tensors[i - 1]), key(tensors[i]));
  safetensors::Metadata metadata = file.metadata();
  EXPECT_EQ(metadata.erase("nvfp4_cpp"), 1u);
  EXPECT_EQ(metadata, (safetensors::Metadata{{"format", "pt"}}));
}

}  // namespace nvfp4::there_and_back_test
