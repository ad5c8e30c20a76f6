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

std::string config_text(const fs::path& folder) { return read_text(folder / "config.json"); }

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

TEST_F(GgufConvert, UnfinishedFileOfOthersStays) {
  write_llama(dir / "source");
  auto options = quantize_options(dir / "source", dir / "m.gguf", {"--format", "gguf"});
  quantize_checkpoint(options);
  const fs::path partial = dir / "m.gguf.partial";
  fs::rename(options.output, partial);  // as a run leaves it that is killed
  quantize_checkpoint(options);
  EXPECT_FALSE(fs::exists(partial));
  fs::remove(options.output);
  write_text(partial, "mine");
  expect_error<IoError>([&] { quantize_checkpoint(options); },
                        {"m.gguf.partial: is there already", "--overwrite"});
  EXPECT_EQ(read_text(partial), "mine");
  options.overwrite = true;
  quantize_checkpoint(options);
  EXPECT_FALSE(fs::exists(partial));
}

TEST_F(GgufConvert, ConfigComesBack) {
  write_llama(dir / "source");
  quantize(dir);
  convert(dir / "a", dir / "m.gguf", "gguf");
  convert(dir / "m.gguf", dir / "plain", "bf16");
  EXPECT_EQ(Json::parse(config_text(dir / "plain")), Json::parse(config_text(dir / "source")));
  convert(dir / "a", dir / "direct", "bf16");
  expect_same_tensors(dir / "plain", dir / "direct");
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

class GgufRefusal : public ::testing::Test {
 protected:
  void SetUp() override { write_llama(dir / "source"); }
  template <class E>
  void refused(std::initializer_list<std::string_view> parts, bool force = false) {
    expect_error<E>([&] { convert(dir / "a", dir / "m.gguf", "gguf", force); }, parts);
    EXPECT_FALSE(fs::exists(dir / "m.gguf"));
    EXPECT_FALSE(fs::exists(dir / "m.gguf.partial"));
  }
  /// Reads a shard, changes it, and writes it again.
  template <class Change>
  void edit(const std::string& tensor, Change change) {
    for (const auto& entry : fs::directory_iterator(dir / "a")) {
      if (entry.path().extension() != ".safetensors") continue;
      std::uint64_t begin = 0, size = 0;
      {
        const auto file = safetensors::File::open(entry.path());
        const auto* t = file.find(tensor);
        if (t == nullptr) continue;
        begin = t->begin;
        size = t->bytes;
      }
      std::string content = read_text(entry.path());
      change(std::span(reinterpret_cast<std::uint8_t*>(content.data() + begin), size));
      write_text(entry.path(), content);
      return;
    }
    FAIL() << "no tensor " << tensor;
  }
  TempDir dir;
};

TEST_F(GgufRefusal, ScalesThatMeanSomethingElseThere) {
  quantize(dir);
  for (const auto& [bits, text] : {std::pair{0x7F, "0x7f (nan)"}, std::pair{0xFF, "0xff"},
                                   std::pair{0x80, "0x80 (-0)"}, std::pair{0xB8, "0xb8 (-1)"}}) {
    edit("model.layers.1.mlp.up_proj.weight_scale",
         [&](std::span<std::uint8_t> s) { s[5] = static_cast<std::uint8_t>(bits); });
    // With --allow broken-scales too: GGUF's scales have no sign and no NaN.
    refused<ValueError>({"'model.layers.1.mlp.up_proj.weight'", "scale 5 is", text}, true);
  }
}

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

TEST_F(GgufRefusal, ArchitecturesThatAreNotKnown) {
  quantize(dir);
  Json config = llama_config();
  config["model_type"] = "mamba";
  write_json(dir / "a" / "config.json", config);
  refused<UnsupportedError>({"config.json", "model_type = \"mamba\"", "llama, mistral",
                             "'model.layers.0.mlp.down_proj.weight' has no place in GGUF"});
  fs::remove(dir / "a" / "config.json");
  refused<UnsupportedError>({"config.json: there is no such file", "architecture is not known"});
}

TEST_F(GgufRefusal, OneFileOfComfyUiWithoutItsFolder) {
  quantize(dir);
  fs::create_directory(dir / "c");
  convert(dir / "a", dir / "c" / "a", "comfyui");  // the file has the folder's name
  const fs::path file = dir / "c" / "a" / "model.safetensors";
  convert(file, dir / "m.gguf", "gguf");  // with the config.json beside it
  convert(dir / "a", dir / "n.gguf", "gguf");
  EXPECT_EQ(read_text(dir / "m.gguf"), read_text(dir / "n.gguf"));
  fs::remove(dir / "c" / "a" / "config.json");
  expect_error<UnsupportedError>([&] { convert(file, dir / "o.gguf", "gguf"); },
                                 {"config.json: there is no such file"});
  EXPECT_FALSE(fs::exists(dir / "o.gguf"));
}

TEST_F(GgufRefusal, ConfigurationsThatSayTooLittle) {
  quantize(dir);
  for (const char* key : {"num_attention_heads", "max_position_embeddings", "hidden_size"}) {
    Json config = llama_config();
    config.erase(key);
    write_json(dir / "a" / "config.json", config);
    expect_error<Error>([&] { convert(dir / "a", dir / "m.gguf", "gguf"); }, {key});
  }
  Json config = llama_config();
  config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2}};
  write_json(dir / "a" / "config.json", config);
  refused<UnsupportedError>({"rotary embeddings of type 'dynamic'"});
}

TEST_F(GgufRefusal, ConfigurationsThatContradictTheTensorsOrThemselves) {
  quantize(dir);
  for (const auto& [key, value, text] :
       {std::tuple{"num_hidden_layers", Json(3), "'llama.block_count' = 3, but 2 layers have"},
        std::tuple{"rope_theta", Json(-1), "rope_theta = -1, must be a number greater than 0"},
        std::tuple{"rope_theta", Json("1"), "rope_theta = \"1\", must be a number"},
        std::tuple{"rms_norm_eps", Json(0), "rms_norm_eps = 0, must be a number greater"},
        std::tuple{"hidden_size", Json(0), "hidden_size = 0, must be at least 1"},
        std::tuple{"hidden_size", Json(32), "'token_embd.weight': [96, 64], must be [96, 32]"},
        std::tuple{"head_dim", Json(8), "'blk.0.attn_q.weight': [64, 64], must be [32, 64]"},
        std::tuple{"vocab_size", Json(97), "'token_embd.weight': [96, 64], must be [97, 64]"},
        std::tuple{"rope_scaling", Json({{"rope_type", "linear"}, {"factor", 2}}),
                   "'factor' = 2 in rope_scaling, 4 in rope_parameters"}}) {
    Json config = llama_config();
    config["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 4}};
    config[key] = value;
    write_json(dir / "a" / "config.json", config);
    refused<FormatError>({text});
  }
}

/// llama.cpp's graphs have no other form of these.
TEST_F(GgufRefusal, ConfigurationsThatLlamaCppComputesOtherwise) {
  quantize(dir);
  for (const auto& [key, value] :
       {std::pair{"hidden_act", Json("gelu")}, std::pair{"partial_rotary_factor", Json(0.5)}}) {
    Json config = llama_config();
    config[key] = value;
    write_json(dir / "a" / "config.json", config);
    refused<UnsupportedError>({"config.json", key, value.dump(), "llama.cpp"});
  }
  write_qwen3_moe(dir / "moe");
  fs::remove_all(dir / "a");
  quantize_checkpoint(dir / "moe", dir / "a");
  Json config = Json::parse(config_text(dir / "a"));
  config["norm_topk_prob"] = false;
  write_json(dir / "a" / "config.json", config);
  refused<UnsupportedError>({"norm_topk_prob = false, must be true"});
  config.erase("norm_topk_prob");  // which is false, too
  write_json(dir / "a" / "config.json", config);
  refused<UnsupportedError>({"norm_topk_prob = false, must be true"});
}

/// Neither quantize nor convert writes what reading the file would refuse.
TEST_F(GgufRefusal, ModelsWithoutATensor) {
  auto options = quantize_options(dir / "part", dir / "m.gguf", {"--format", "gguf"});
  for (const auto& [removed, missing] :
       {std::pair{"model.layers.1.mlp.up_proj.weight", "'blk.1.ffn_up.weight'"},
        std::pair{"model.layers.0.input_layernorm.weight", "'blk.0.attn_norm.weight'"},
        std::pair{"model.embed_tokens.weight", "'token_embd.weight'"}}) {
    fs::remove_all(dir / "part");
    fs::remove_all(dir / "a");
    LoadedFolder model(dir / "source");
    model.remove(removed);
    model.write(dir / "part");
    write_json(dir / "part" / "config.json", llama_config());
    expect_error<FormatError>([&] { quantize_checkpoint(options); }, {"part", missing});
    quantize_checkpoint(dir / "part", dir / "a");
    refused<FormatError>({"a: as GGUF: has no tensor", missing, "which llama models have"});
  }
}

TEST_F(GgufRefusal, TensorsWithoutAName) {
  write_model(dir / "odd",
              {{random_tensor("model.layers.0.mlp.up_proj.weight", {64, 64}),
                random_tensor("model.layers.0.mlp.mystery.weight", {64})}},
              "");
  write_json(dir / "odd" / "config.json", llama_config());
  quantize_checkpoint(dir / "odd", dir / "a");
  refused<UnsupportedError>(
      {"a/model.safetensors", "'model.layers.0.mlp.mystery.weight'", "no name in GGUF's 'llama'"});
}

TEST_F(GgufRefusal, ExpertsThatAreMissingOrDiffer) {
  write_qwen3_moe(dir / "moe");
  quantize_checkpoint(dir / "moe", dir / "a");
  Json config = Json::parse(config_text(dir / "a"));
  config["num_experts"] = 4;
  write_json(dir / "a" / "config.json", config);
  refused<FormatError>({"'blk.0.ffn_gate_inp.weight': [3, 64], must be [4, 64]"});
}

TEST_F(GgufRefusal, OutputsThatCannotBeWritten) {
  quantize(dir);
  const auto to = [&](const std::string& name,
                      const std::function<void(ConvertOptions&)>& set = {}) {
    auto options = convert_options(dir / "a", dir / name, "gguf");
    if (set) set(options);
    convert_checkpoint(options);
  };
  expect_error<ValueError>([&] { to("m.safetensors"); }, {"must end in .gguf"});
  expect_error<UnsupportedError>([&] { to("m.gguf", [](auto& o) { o.resume = true; }); },
                                 {"resume"});
  to("m.gguf", [](auto& o) { o.dry_run = true; });
  EXPECT_FALSE(fs::exists(dir / "m.gguf"));
  to("m.gguf");
  expect_error<IoError>([&] { to("m.gguf"); }, {"is there already", "--overwrite"});
  to("m.gguf", [](auto& o) { o.overwrite = true; });
  write_text(dir / "text.gguf", "mine");
  write_text(dir / "other.gguf", gguf::GgufBytes().str());
  for (const std::string other : {"text.gguf", "other.gguf"})
    expect_error<IoError>([&] { to(other, [](auto& o) { o.overwrite = true; }); },
                          {other + ": its metadata do not name nvfp4, so --overwrite does not"});
  for (const std::size_t bytes : {0, 1 << 20}) {  // of runs that were killed before the header
    write_text(dir / "n.gguf.partial", std::string(bytes, '\0'));
    to("n.gguf");
    fs::remove(dir / "n.gguf");
  }
  write_text(dir / "n.gguf.partial", std::string(1 << 20, '\0') + "mine");
  expect_error<IoError>([&] { to("n.gguf"); }, {"n.gguf.partial: is there already"});
  fs::create_directory(dir / "folder.gguf");
  expect_error<IoError>([&] { to("folder.gguf"); }, {"must be a regular file"});
  expect_error<ValueError>(
      [&] {
        to("m.gguf", [&](auto& o) {
          o.input = dir / "m.gguf";
          o.overwrite = true;
        });
      },
      {"is input"});
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
