#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/blocks.h"
#include "checkpoint/gguf/gguf_bytes.h"
#include "checkpoint/gguf/gguf_models.h"
#include "checkpoint/io/tensor_file.h"

/// Conversions to GGUF, and back.
namespace nvfp4::gguf::gguf_convert_test {

void quantize(const TempDir& dir, const std::string& format = "modelopt",
              Scheme scheme = Scheme::w4a4) {
  quantize_checkpoint(dir / "source", dir / "a", {"--format", format, "--scheme", scheme});
}

/// A row of the model's codes and scales as blocks.
std::vector<std::byte> packed_row(const LoadedModel& model, const std::string& module,
                                  std::int64_t row) {
  const auto& codes = model.at(module + ".weight");
  const auto& scales = model.at(module + ".weight_scale");
  const auto part = [row](const LoadedModel::Tensor& t) {
    return std::span(t.bytes).subspan(static_cast<std::size_t>(row * t.shape[1]),
                                      static_cast<std::size_t>(t.shape[1]));
  };
  std::vector<std::byte> out(static_cast<std::size_t>(codes.shape[1] / 32) * kBlockBytes);
  pack_blocks(part(codes), part(scales), out);
  return out;
}

std::vector<std::byte> stored_row(const File& file, const std::string& name, std::int64_t row) {
  const auto cols = file.find(name)->shape.back();
  std::vector<std::byte> out(static_cast<std::size_t>(cols / 64) * kBlockBytes);
  file.read(*file.find(name), static_cast<std::uint64_t>(row) * out.size(), out);
  return out;
}

struct GgufConvert : FolderTest {};

TEST_F(GgufConvert, CodesAndScalesFollowTheOrderOfRope) {
  write_llama(dir / "source");
  quantize(dir);
  convert(dir / "a", dir / "m.gguf", "gguf");
  const LoadedModel a(dir / "a");
  const File m = File::open(dir / "m.gguf");
  EXPECT_EQ(m.find("blk.1.ffn_down.weight")->shape, (std::vector<std::int64_t>{64, 128}));
  for (std::int64_t row = 0; row < 64; ++row)
    EXPECT_EQ(stored_row(m, "blk.1.ffn_down.weight", row),
              packed_row(a, "model.layers.1.mlp.down_proj", row));
  // Heads of 16 rows: 0 8 1 9 ... 7 15, 16 24 ...
  for (std::int64_t row = 0; row < 64; ++row) {
    const std::int64_t inside = row % 16, from = row - inside + inside / 2 + inside % 2 * 8;
    EXPECT_EQ(stored_row(m, "blk.0.attn_q.weight", row),
              packed_row(a, "model.layers.0.self_attn.q_proj", from));
    if (row < 32) {
      EXPECT_EQ(stored_row(m, "blk.0.attn_k.weight", row),
                packed_row(a, "model.layers.0.self_attn.k_proj", from));
      EXPECT_EQ(stored_row(m, "blk.0.attn_v.weight", row),
                packed_row(a, "model.layers.0.self_attn.v_proj", row));
    }
  }
  EXPECT_EQ(floats_of(m, "blk.0.attn_q.scale"),
            std::vector{a.scalar("model.layers.0.self_attn.q_proj.weight_scale_2")});
  EXPECT_EQ(floats_of(m, "blk.0.attn_q.input_scale"), std::vector{1.0f});
  EXPECT_EQ(bytes_of(m, "token_embd.weight"), a.at("model.embed_tokens.weight").bytes);
  const auto norm = floats_of(m, "blk.1.ffn_norm.weight");
  const auto& bits = a.at("model.layers.1.post_attention_layernorm.weight").bytes;
  for (std::size_t i = 0; i < norm.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, bits.data() + 2 * i, 2);
    EXPECT_EQ(norm[i], BF16{half}.to_float());
  }
}

TEST_F(GgufConvert, SaysWhatLlamaCppMustKnow) {
  Json config = llama_config();
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  write_llama(dir / "source", config);
  quantize(dir);
  convert(dir / "a", dir / "m.gguf", "gguf");
  const File m = File::open(dir / "m.gguf");
  const Header& h = m.header();
  EXPECT_EQ(*h.text("general.architecture"), "llama");
  for (const auto& [key, value] :
       {std::pair{"general.file_type", 39}, std::pair{"general.quantization_version", 2},
        std::pair{"llama.block_count", 2}, std::pair{"llama.context_length", 2048},
        std::pair{"llama.embedding_length", 64}, std::pair{"llama.feed_forward_length", 128},
        std::pair{"llama.attention.head_count", 4}, std::pair{"llama.attention.head_count_kv", 2},
        std::pair{"llama.rope.dimension_count", 16}, std::pair{"llama.vocab_size", 96}})
    EXPECT_EQ(h.integer(key), value) << key;
  EXPECT_EQ(std::get<double>(h.find("llama.rope.freq_base")->value), 500000.0);
  EXPECT_EQ(std::get<double>(h.find("llama.attention.layer_norm_rms_epsilon")->value),
            static_cast<double>(1e-5f));
  // High frequencies stay, low ones are divided by 8; in between, wavelength 2 pi sqrt(500000):
  // smooth = (8192 / 4442.88 - 1) / 3 = 0.28128, 1 / ((1 - smooth) / 8 + smooth) = 2.6945.
  const auto factors = floats_of(m, "rope_freqs.weight");
  ASSERT_EQ(factors.size(), 8u);
  EXPECT_EQ(factors[0], 1.0f);
  EXPECT_EQ(factors[7], 8.0f);
  EXPECT_NEAR(factors[4], 2.6945, 1e-4);
  convert(dir / "m.gguf", dir / "b", "modelopt");
  expect_same_tensors(dir / "a", dir / "b");
}

TEST_F(GgufConvert, StacksExpertsInTheirOrder) {
  write_qwen3_moe(dir / "source");
  quantize(dir);
  convert(dir / "a", dir / "m.gguf", "gguf");
  const LoadedModel a(dir / "a");
  const File m = File::open(dir / "m.gguf");
  const std::string stack = "blk.0.ffn_down_exps";
  EXPECT_EQ(m.find(stack + ".weight")->shape, (std::vector<std::int64_t>{3, 64, 128}));
  std::vector<float> globals;
  for (std::int64_t e = 0; e < 3; ++e) {
    const std::string module = "model.layers.0.mlp.experts." + std::to_string(e) + ".down_proj";
    globals.push_back(a.scalar(module + ".weight_scale_2"));
    for (std::int64_t row = 0; row < 64; ++row)
      EXPECT_EQ(stored_row(m, stack + ".weight", e * 64 + row), packed_row(a, module, row));
  }
  EXPECT_EQ(floats_of(m, stack + ".scale"), globals);
  EXPECT_EQ(m.find(stack + ".input_scale")->shape, std::vector<std::int64_t>{3});
  EXPECT_EQ(stored_row(m, "blk.0.attn_q.weight", 1),
            packed_row(a, "model.layers.0.self_attn.q_proj", 1))
      << "Qwen's rows stay";
  EXPECT_EQ(m.header().integer("qwen3moe.expert_count"), 3);
  EXPECT_EQ(m.header().integer("qwen3moe.expert_used_count"), 2);
  convert(dir / "m.gguf", dir / "b", "modelopt");
  expect_same_tensors(dir / "a", dir / "b");
}

/// Experts that are not quantized are stacked too.
TEST_F(GgufConvert, StacksPlainExperts) {
  write_qwen3_moe(dir / "source");
  quantize_checkpoint(dir / "source", dir / "a", {"--ignore", "*.experts.*"});
  convert(dir / "a", dir / "m.gguf", "gguf");
  const File m = File::open(dir / "m.gguf");
  EXPECT_EQ(m.find("blk.0.ffn_up_exps.weight")->type->name, "BF16");
  EXPECT_EQ(m.find("blk.0.ffn_gate_inp.weight")->type->name, "F32");
  convert(dir / "m.gguf", dir / "b", "modelopt");
  expect_same_tensors(dir / "a", dir / "b");
}

struct GgufRefusal : FolderTest {
  GgufRefusal() { write_llama(dir / "source"); }
};

TEST_F(GgufRefusal, QuantizeExcludesDepthsNoMultipleOf64) {
  LoadedFolder model(dir / "source");
  for (const char* layer : {"0", "1"})
    for (const auto& [name, shape] : {std::pair{"gate_proj", std::vector<std::int64_t>{96, 64}},
                                      {"up_proj", {96, 64}},
                                      {"down_proj", {64, 96}}}) {
      const std::string weight = fmt::format("model.layers.{}.mlp.{}.weight", layer, name);
      model.at(weight) = random_tensor(weight, shape);
    }
  model.write(dir / "narrow");
  Json config = llama_config();
  config["intermediate_size"] = 96;
  write_json(dir / "narrow" / "config.json", config);
  quantize_checkpoint(dir / "narrow", dir / "n.gguf", {"--format", "gguf"});
  EXPECT_EQ(File::open(dir / "n.gguf").find("blk.0.ffn_down.weight")->type->name, "BF16");
}

TEST_F(GgufRefusal, OutputsOfOthersStay) {
  quantize(dir);
  write_text(dir / "other.gguf", gguf::GgufBytes().str());
  const auto options = convert_options(dir / "a", dir / "other.gguf", "gguf", {"--overwrite"});
  expect_error<IoError>([&] { convert_checkpoint(options); },
                        {"other.gguf: its metadata do not name nvfp4, so --overwrite does not"});
}

struct GgufSource : FolderTest {};

TEST_F(GgufSource, RefusesWhatItCannotRead) {
  const auto refused = [&](const std::vector<NewEntry>& entries,
                           const std::vector<TensorSpec>& specs,
                           std::initializer_list<std::string_view> parts) {
    Writer writer(dir / "m.gguf", entries, specs);
    const std::vector<std::byte> zeros(1 << 16);
    for (std::size_t i = 0; i < specs.size(); ++i)
      writer.write(i, 0, std::span(zeros).first(*tensor_bytes(*specs[i].type, specs[i].shape)));
    writer.commit();
    expect_error<Error>([&] { convert(dir / "m.gguf", dir / "b", "bf16"); }, parts);
  };
  const NewEntry llama = {"general.architecture", new_text("llama")};
  refused({}, {}, {"m.gguf: has no 'general.architecture'"});
  refused({{"general.architecture", new_text("whisper")}}, {}, {"architecture 'whisper'"});
  refused({llama}, {{"blk.0.ffn_up.weight", find_type(2), {64, 64}}},
          {"'blk.0.ffn_up.weight': Q4_0, must be NVFP4, Q8_0"});
  refused({llama}, {{"blk.0.mystery.weight", find_type(kF32), {64}}}, {"'blk.0.mystery.weight'"});
  refused({llama}, {{"blk.0.attn_q.weight", find_type(kNvfp4), {64, 64}}},
          {"has no key 'llama.attention.head_count'"});
  refused({llama, {"llama.attention.head_count", new_u32(64)}},
          {{"blk.0.attn_q.weight", find_type(kNvfp4), {64, 64}}}, {"even number"});
  // Twice this many is 2^64 - 2, so -2.
  refused({llama,
           {"llama.attention.head_count",
            {.type = ValueType::u64, .value = std::uint64_t{0x7FFFFFFFFFFFFFFF}}}},
          {{"blk.0.attn_q.weight", find_type(kNvfp4), {64, 64}}}, {"even number"});
  refused({llama, {"split.count", {.type = ValueType::u16, .value = std::uint64_t{3}}}},
          {{"blk.0.ffn_up.weight", find_type(kNvfp4), {64, 64}}}, {"one of 3 files"});
  const NewEntry qwen = {"general.architecture", new_text("qwen3moe")};
  refused({qwen, {"qwen3moe.expert_count", new_u32(1)}},
          {{"blk.0.ffn_gate_exps.weight", find_type(kF32), {std::int64_t{1} << 40, 0}}},
          {"'blk.0.ffn_gate_exps.weight'", "must be 1 to 4096 experts"});
  refused({llama},
          {{"blk.0.ffn_up.weight", find_type(kNvfp4), {64, 64}},
           {"blk.0.ffn_up.scale", find_type(kF32), {2}}},
          {"'blk.0.ffn_up.scale': F32 [2], must be F32 with 1 element"});
}

TEST_F(GgufSource, RefusesScalesThatLlamaCppReadsOtherwise) {
  write_llama(dir / "source");
  quantize(dir);
  convert(dir / "a", dir / "m.gguf", "gguf");
  edit_tensor(dir / "m.gguf", "blk.1.ffn_up.weight",
              [](std::span<std::uint8_t> bytes) { bytes[36 + 2] = 0x7F; });
  expect_error<FormatError>([&] { convert(dir / "m.gguf", dir / "b", "modelopt"); },
                            {"'blk.1.ffn_up.weight': scale 6 is 0x7f"});
}

TEST_F(GgufSource, RefusesWidenedValuesThatWereChanged) {
  write_llama(dir / "source");
  quantize(dir);
  convert(dir / "a", dir / "m.gguf", "gguf");
  edit_tensor(dir / "m.gguf", "output_norm.weight",
              [](std::span<std::uint8_t> bytes) { bytes[0] = 1; });
  expect_error<FormatError>([&] { convert(dir / "m.gguf", dir / "b", "modelopt"); },
                            {"'model.norm.weight'", "is no BF16"});
}

/// Reads of any place and size give what one read gives.
TEST_F(GgufSource, ReadsPartsOfTensors) {
  write_llama(dir / "source");
  quantize(dir);
  convert(dir / "a", dir / "m.gguf", "gguf");
  const auto file = checkpoint::TensorFile::open(dir / "m.gguf");
  const LoadedModel a(dir / "a");
  for (const char* name :
       {"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight_scale",
        "model.layers.1.mlp.down_proj.weight", "model.norm.weight"}) {
    const auto& whole = a.at(name).bytes;
    for (std::uint64_t at : {0, 1, 31, 32, 33, 100})
      for (std::size_t n : {1, 2, 27, 28}) {
        std::vector<std::byte> part(n);
        file.read(*file.find(name), at, part);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<long>(at)))
            << name << " " << at << " " << n;
      }
    std::vector<std::byte> beyond(whole.size());
    EXPECT_THROW(file.read(*file.find(name), 1, beyond), ValueError);
  }
}

}  // namespace nvfp4::gguf::gguf_convert_test
