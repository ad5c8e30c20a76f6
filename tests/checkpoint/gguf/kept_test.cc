#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/gguf_models.h"

/// Tests of what a GGUF file copies from another one, and of tensors that llama.cpp needs
/// unchanged.
namespace nvfp4::gguf::kept_test {

QuantizeReport quantize(const fs::path& input, const fs::path& output) {
  QuantizeCheckpointOptions options;
  options.input = input;
  options.output = output;
  return quantize_checkpoint(options);
}

/// Writes a file like that of another program: with a tokenizer and foreign keys.
void write_foreign(const fs::path& path) {
  std::vector<NewEntry> entries = {
      {"general.architecture", new_text("llama")},
      {"general.name", new_text("Foreign")},
      {"general.file_type", new_u32(32)},
      {"general.tags", new_strings({"text-generation", "pytorch"})},
      {"llama.block_count", new_u32(1)},
      {"llama.context_length", new_u32(4096)},
      {"llama.embedding_length", new_u32(64)},
      {"llama.feed_forward_length", new_u32(128)},
      {"llama.attention.head_count", new_u32(4)},
      {"llama.attention.head_count_kv", new_u32(2)},
      {"llama.attention.layer_norm_rms_epsilon", new_f32(1e-5)},
      {"llama.rope.freq_base", new_f32(500000)},
      {"llama.rope.scaling.attn_factor", new_f32(0.75)},
      {"tokenizer.ggml.model", new_text("llama")},
      {"tokenizer.ggml.tokens", new_strings({"<unk>", "a",
                                             "\xE2\x96\x81"
                                             "b"})},
      {"tokenizer.ggml.scores",
       {.type = ValueType::array, .element = ValueType::f32, .reals = {0, -1.5, -2}}},
      {"tokenizer.ggml.token_type", new_i32s({2, 1, 1})},
      {"tokenizer.ggml.add_bos_token", new_bool(true)},
      {"tokenizer.chat_template", new_text("{{ messages }}")}};
  std::vector<TensorSpec> specs;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape,
                       std::uint32_t type) {
    specs.push_back({name, find_type(type), std::move(shape)});
  };
  add("token_embd.weight", {96, 64}, kBF16);
  add("rope_freqs.weight", {8}, kF32);
  add("blk.0.attn_norm.weight", {64}, kF32);
  add("blk.0.attn_q.weight", {64, 64}, kBF16);
  add("blk.0.attn_k.weight", {32, 64}, kBF16);
  add("blk.0.attn_v.weight", {32, 64}, kBF16);
  add("blk.0.attn_output.weight", {64, 64}, kBF16);
  add("blk.0.ffn_norm.weight", {64}, kF32);
  add("blk.0.ffn_gate.weight", {128, 64}, kBF16);
  add("blk.0.ffn_up.weight", {128, 64}, kBF16);
  add("blk.0.ffn_down.weight", {64, 128}, kF16);
  add("output_norm.weight", {64}, kF32);
  Writer writer(path, entries, specs);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto dtype = specs[i].type->id == kF32    ? safetensors::DType::f32
                       : specs[i].type->id == kBF16 ? safetensors::DType::bf16
                                                    : safetensors::DType::f16;
    writer.write(i, 0, random_tensor(specs[i].name, specs[i].shape, dtype).bytes);
  }
  writer.commit();
}

void expect_kept(const File& from, const File& to) {
  for (const Entry& entry : from.header().entries) {
    if (entry.key == kFileTypeKey) continue;
    const auto& all = to.header().entries;
    const auto same = std::ranges::find(all, entry.key, &Entry::key);
    ASSERT_NE(same, all.end()) << entry.key;
    EXPECT_EQ(from.raw(entry), to.raw(*same)) << entry.key;
  }
}

TEST(GgufToGguf, KeepsTheTokenizerAndEveryOtherKey) {
  const TempDir dir;
  write_foreign(dir / "in.gguf");
  const QuantizeReport report = quantize(dir / "in.gguf", dir / "out.gguf");
  EXPECT_TRUE(report.warnings.empty()) << report.warnings[0];
  const File in = File::open(dir / "in.gguf"), out = File::open(dir / "out.gguf");
  expect_kept(in, out);
  EXPECT_EQ(out.header().integer(kFileTypeKey), 39);
  EXPECT_EQ(out.header().find("nvfp4.config"), nullptr) << "the keys say more";
  EXPECT_EQ(out.find("blk.0.attn_q.weight")->type->name, "NVFP4");
  EXPECT_EQ(out.find("blk.0.ffn_down.weight")->type->name, "NVFP4");
  for (const char* name : {"token_embd.weight", "rope_freqs.weight", "blk.0.attn_norm.weight"})
    EXPECT_EQ(bytes_of(out, name), bytes_of(in, name)) << name;
  // Rows of q lie where they lay.
  EXPECT_LT(compare_checkpoints(dir / "in.gguf", dir / "out.gguf").relative_error, 0.2);

  convert(dir / "out.gguf", dir / "again.gguf", "gguf");
  EXPECT_EQ(read_text(dir / "again.gguf"), read_text(dir / "out.gguf"));
}

TEST(GgufToGguf, OwnFileKeepsItsConfiguration) {
  const TempDir dir;
  write_llama(dir / "source");
  quantize(dir / "source", dir / "a.gguf");
  convert(dir / "a.gguf", dir / "b.gguf", "gguf");
  const File a = File::open(dir / "a.gguf"), b = File::open(dir / "b.gguf");
  expect_kept(a, b);
  EXPECT_EQ(*b.header().text("nvfp4.config"), *a.header().text("nvfp4.config"));
  convert(dir / "a.gguf", dir / "folder-a", "modelopt");
  convert(dir / "b.gguf", dir / "folder-b", "modelopt");
  EXPECT_EQ(files_of(dir / "folder-a"), files_of(dir / "folder-b"));
}

/// Two layers of DeepSeek-V3's attention and experts, the second without the former.
void write_deepseek(const fs::path& folder) {
  ASSERT_NO_THROW(sample_checkpoint(
      {.output = folder, .arch = "deepseek-v3", .scale = 1.0 / 64, .progress = {}}));
}

TEST(GgufDeepSeek, KeepsWhatLlamaCppMultipliesByNoScale) {
  const TempDir dir;
  write_deepseek(dir / "in");
  QuantizeCheckpointOptions options;
  options.input = dir / "in";
  options.output = dir / "m.gguf";
  options.allow.drop = true;  // of multi-token prediction
  const QuantizeReport report = quantize_checkpoint(options);
  const File m = File::open(dir / "m.gguf");
  for (const char* name : {"attn_q_a", "attn_q_b", "attn_kv_a_mqa", "attn_k_b", "attn_v_b"})
    EXPECT_EQ(m.find("blk.0." + std::string(name) + ".weight")->type->name, "BF16") << name;
  EXPECT_EQ(m.find("blk.0.attn_output.weight")->type->name, "NVFP4");
  int kept = 0;
  for (const TensorReport& t : report.tensors)
    kept += t.reason == "llama.cpp applies no global scale to it";
  EXPECT_GE(kept, 6) << "three in each layer, beside kv_b_proj, which is always kept";
}

/// Keys of heads are stored as columns, so they cannot be in blocks of a row.
TEST(GgufDeepSeek, Mxfp4KeysBecomeBf16) {
  const TempDir dir;
  write_deepseek(dir / "in");
  quantize_checkpoint(dir / "in", dir / "a");
  LoadedFolder model(dir / "a");
  const std::string name = "model.layers.0.self_attn.kv_b_proj";
  auto& shard = model.shard_of(name + ".weight");
  const std::vector<std::int64_t> shape = model.at(name + ".weight").spec.shape;
  model.remove(name + ".weight");
  append(shard, mxfp4_matrix(name, shape[0], shape[1], 120, 127));
  model.write(dir / "b");
  ConvertOptions options = convert_options(dir / "b", dir / "m.gguf", "gguf");
  options.allow.drop = true;
  convert_checkpoint(options);
  const File m = File::open(dir / "m.gguf");
  for (const char* keys : {"blk.0.attn_k_b.weight", "blk.0.attn_v_b.weight"})
    EXPECT_EQ(m.find(keys)->type->name, "BF16") << keys;
}

/// Nothing is written of a model that llama.cpp names, scales or computes otherwise.
TEST(GgufUnknown, ModelsAreRefusedByTensorBeforeWriting) {
  const TempDir dir;
  for (const char* type : {"gemma", "gemma2", "deepseek_v4"}) {
    write_model(dir / type, {{random_tensor("model.layers.0.self_attn.qkv_proj.weight", {64, 64})}},
                "");
    Json config = llama_config();
    config["model_type"] = type;
    write_json(dir / type / "config.json", config);
    expect_error<UnsupportedError>(
        [&] { quantize(dir / type, dir / "m.gguf"); },
        {type, "must be one of llama", "'model.layers.0.self_attn.qkv_proj.weight'",
         "hint: convert the model in BF16"});
    EXPECT_FALSE(fs::exists(dir / "m.gguf"));
    EXPECT_FALSE(fs::exists(dir / "m.gguf.partial"));
  }
}

}  // namespace nvfp4::gguf::kept_test
