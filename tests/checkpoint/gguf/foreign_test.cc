#include "checkpoint/case_table.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/config.h"
#include "checkpoint/gguf/gguf_models.h"

/// Files of other programs, which keep no config.json.
namespace nvfp4::gguf {

/// A file whose tensors are zeros.
struct ForeignFile {
  std::string architecture, type;
  std::map<std::string, NewValue> keys;
  std::vector<TensorSpec> tensors;

  void add(const std::string& name, std::vector<std::int64_t> shape) {
    tensors.push_back({name, find_type(kF32), std::move(shape)});
  }
  void add_layers(const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& modules,
                  int first = 0) {
    for (int layer = first; layer < 2; ++layer)
      for (const auto& [module, shape] : modules)
        add("blk." + std::to_string(layer) + "." + module + ".weight", shape);
  }
  void remove(const std::string& name) {
    if (std::erase_if(tensors, [&](const TensorSpec& t) { return t.name == name; }) != 1)
      throw std::runtime_error("no tensor " + name);
  }
  /// Replaces the shape of the tensors whose names end in `module`.
  void reshape(const std::string& module, const std::vector<std::int64_t>& shape) {
    for (TensorSpec& t : tensors)
      if (t.name.ends_with(module + ".weight")) t.shape = shape;
  }
  std::vector<NewEntry> entries() const {
    std::vector<NewEntry> out = {{"general.architecture", new_text(architecture)}};
    if (!type.empty()) out.push_back({"general.type", new_text(type)});
    for (const auto& [key, value] : keys) out.push_back({architecture + "." + key, value});
    return out;
  }
  void write(const std::filesystem::path& path, const std::vector<float>& rope_freqs = {}) const {
    std::vector<TensorSpec> specs = tensors;
    if (!rope_freqs.empty())
      specs.push_back(
          {"rope_freqs.weight", find_type(kF32), {static_cast<std::int64_t>(rope_freqs.size())}});
    Writer writer(path, entries(), specs);
    const std::vector<std::byte> zeros(1 << 17);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      writer.write(i, 0, std::span(zeros).first(*tensor_bytes(*specs[i].type, specs[i].shape)));
    if (!rope_freqs.empty()) writer.write(tensors.size(), 0, std::as_bytes(std::span(rope_freqs)));
    writer.commit();
  }
};

/// Two layers, four heads of 16. `kind`: "dense", "biases" of queries, keys and values, "experts",
/// or DeepSeek's "latent" attention, whose first layer is dense; queries of "ranked" have a rank.
ForeignFile whole_file(const std::string& kind, const std::string& architecture) {
  const bool latent = kind == "latent" || kind == "ranked", experts = latent || kind == "experts";
  ForeignFile file{architecture,
                   {},
                   {{"block_count", new_u32(2)},
                    {"context_length", new_u32(4096)},
                    {"embedding_length", new_u32(64)},
                    {"feed_forward_length", new_u32(128)},
                    {"attention.head_count", new_u32(4)},
                    {"attention.layer_norm_rms_epsilon", new_f32(1e-5)}},
                   {}};
  file.add("token_embd.weight", {96, 64});
  file.add("output_norm.weight", {64});
  file.add_layers({{"attn_norm", {64}}, {"attn_output", {64, 64}}, {"ffn_norm", {64}}});
  if (!latent) file.add_layers({{"attn_q", {64, 64}}, {"attn_k", {64, 64}}, {"attn_v", {64, 64}}});
  if (architecture.starts_with("qwen3"))
    file.add_layers({{"attn_q_norm", {16}}, {"attn_k_norm", {16}}});
  if (kind == "biases")
    for (const char* module : {"attn_q", "attn_k", "attn_v"})
      for (const char* layer : {"0", "1"})
        file.add("blk." + std::string(layer) + "." + module + ".bias", {64});
  if (latent) {
    for (const auto& [key, value] : {std::pair{"attention.kv_lora_rank", 32},
                                     {"attention.head_count_kv", 1},
                                     {"attention.key_length", 40},
                                     {"attention.value_length", 32},
                                     {"attention.key_length_mla", 24},
                                     {"attention.value_length_mla", 16},
                                     {"rope.dimension_count", 8},
                                     {"expert_feed_forward_length", 48},
                                     {"leading_dense_block_count", 1},
                                     {"expert_shared_count", 2}})
      file.keys[key] = new_u32(static_cast<std::uint64_t>(value));
    file.add_layers({{"attn_kv_a_mqa", {40, 64}},
                     {"attn_kv_a_norm", {32}},
                     {"attn_k_b", {4, 32, 16}},
                     {"attn_v_b", {4, 16, 32}}});
    file.add_layers(
        {{"ffn_gate_shexp", {96, 64}}, {"ffn_up_shexp", {96, 64}}, {"ffn_down_shexp", {64, 96}}},
        1);
    if (kind == "latent") file.add_layers({{"attn_q", {96, 64}}});
  }
  if (kind == "ranked") {
    file.keys["attention.q_lora_rank"] = new_u32(24);
    file.add_layers({{"attn_q_a", {24, 64}}, {"attn_q_a_norm", {24}}, {"attn_q_b", {96, 24}}});
  }
  for (const char* layer : {"blk.0.", "blk.1."}) {
    if (experts && !(latent && layer == std::string("blk.0."))) continue;
    for (const char* module : {"ffn_gate.weight", "ffn_up.weight"})
      file.add(std::string(layer) + module, {128, 64});
    file.add(std::string(layer) + "ffn_down.weight", {64, 128});
  }
  if (!experts) return file;
  file.keys["expert_count"] = new_u32(4);
  file.keys["expert_used_count"] = new_u32(2);
  const std::int64_t size = architecture == "llama" ? 128 : latent ? 48 : 64;
  file.add_layers({{"ffn_gate_inp", {4, 64}},
                   {"ffn_gate_exps", {4, size, 64}},
                   {"ffn_up_exps", {4, size, 64}},
                   {"ffn_down_exps", {4, 64, size}}},
                  latent ? 1 : 0);
  if (architecture == "qwen2moe")
    file.add_layers({{"ffn_gate_inp_shexp", {64}},
                     {"ffn_gate_shexp", {128, 64}},
                     {"ffn_up_shexp", {128, 64}},
                     {"ffn_down_shexp", {64, 128}}});
  return file;
}

ForeignFile file_of(const table::Row& row) {
  const table::Words model = table::split(row.column(0), ' ');
  ForeignFile file = whole_file(model[0], model[1]);
  const auto add_bias = [&](const std::string& layer, const std::string& module) {
    file.add("blk." + layer + "." + module + ".bias", {64});
  };
  for (const std::string& change : table::split(row.column(1), ';')) {
    const table::Words w = table::split(change, ' ');
    if (w.empty()) continue;
    if (w[0] == "rm") file.keys.erase(w[1]);
    if (w[0] == "type") file.type = w[1];
    if (w[0] == "rm-tensor") file.remove(w[1]);
    if (w[0] == "reshape") file.reshape(w[1], table::shape_of(w[2]));
    if (w[0] == "add") file.add(w[1], table::shape_of(w[2]));
    if (w[0] == "bias0" || w[0] == "bias") add_bias("0", w[1]);
    if (w[0] == "bias") add_bias("1", w[1]);
    if (w[0] == "bias2") add_bias("2", w[1]);
    if (w.size() < 3 || w[0] == "reshape" || w[0] == "add") continue;
    NewValue& value = file.keys[w[0]];
    if (w[1] == "u32") value = new_u32(std::stoull(w[2]));
    if (w[1] == "f32") value = new_f32(std::stod(w[2]));
    if (w[1] == "bool") value = new_bool(w[2] == "1");
    if (w[1] == "text") value = new_text(w[2]);
    if (w[1] == "i32s") value = new_i32s({std::stoi(w[2]), std::stoi(w[3])});
    if (w[1] == "i64") value = {.type = ValueType::i64, .value = std::int64_t{std::stoll(w[2])}};
    if (w[1] == "u64") value = {.type = ValueType::u64, .value = std::uint64_t{std::stoull(w[2])}};
  }
  return file;
}

class GgufForeign : public FolderTest {
 protected:
  Json config_of(const ForeignFile& file, const std::vector<float>& rope_freqs = {}) {
    file.write(dir / "m.gguf", rope_freqs);
    fs::remove_all(dir / "out");
    convert(dir / "m.gguf", dir / "out", "bf16");
    return Json::parse(read_text(dir / "out" / "config.json"));
  }
  template <class E = UnsupportedError>
  void refused(const ForeignFile& file, const std::vector<std::string>& parts,
               const std::vector<float>& rope_freqs = {}, const std::string& to = "out") {
    file.write(dir / "m.gguf", rope_freqs);
    fs::remove_all(dir / to);
    for (const std::string& part : parts)
      expect_error<E>([&] { convert(dir / "m.gguf", dir / to, to == "out" ? "bf16" : "gguf"); },
                      {part});
    EXPECT_FALSE(fs::exists(dir / to));
  }
};

TEST_F(GgufForeign, KeysBecomeTheConfiguration) {
  for (const table::Row& row : table::rows_of("gguf_foreign.txt")) {
    SCOPED_TRACE(row.name);
    const ForeignFile file = file_of(row);
    const std::string outcome = row.column(2);
    if (!outcome.starts_with('{')) {
      const table::Expected refusal(outcome);
      if (refusal.words.empty()) {
        refused(file, refusal.texts);
        continue;
      }
      // Copies of the keys in another file would be wrong, too.
      for (const char* to : {"out", "out.gguf"}) refused<FormatError>(file, refusal.texts, {}, to);
      const VerifyReport report = verify_checkpoint(verify_options(dir / "m.gguf"));
      EXPECT_TRUE(codes_of(report).contains(refusal.words[0])) << text_of(report);
      for (const std::string& text : refusal.texts)
        EXPECT_NE(text_of(report).find(text), std::string::npos) << text << text_of(report);
      continue;
    }
    const Json config = config_of(file), expected = Json::parse(outcome);
    for (const auto& [key, value] : expected.items())
      EXPECT_EQ(config.at(Json::json_pointer("/" + key)).dump(), value.dump()) << key;
  }
}

/// A file of each architecture has no faults. Without one of its tensors, or with another shape, it
/// has one.
TEST(GgufFaults, EveryTensorIsNeededInItsShape) {
  int files = 0;
  for (const auto& [kind, name] : {std::pair{"dense", "llama"},
                                   {"biases", "llama"},
                                   {"experts", "llama"},
                                   {"biases", "qwen2"},
                                   {"experts", "qwen2moe"},
                                   {"dense", "qwen3"},
                                   {"experts", "qwen3moe"},
                                   {"latent", "deepseek2"},
                                   {"ranked", "deepseek2"}}) {
    SCOPED_TRACE(fmt::format("{} {}", kind, name));
    const ForeignFile file = whole_file(kind, name);
    const auto faults = [&](const ForeignFile& changed) {
      Header header;
      for (const NewEntry& e : changed.entries())
        header.entries.push_back({e.key, {e.value.type, e.value.value}});
      for (const TensorSpec& t : changed.tensors)
        header.tensors.push_back({t.name, t.type, t.shape});
      const Architecture* known = nullptr;
      for (const Architecture* a : architectures())
        if (a->name == changed.architecture && a->experts == file.keys.contains("expert_count"))
          known = a;
      return faults_of(header, *known);
    };
    ASSERT_TRUE(faults(file).empty()) << faults(file)[0].text;
    ++files;
    for (const TensorSpec& t : file.tensors) {
      ForeignFile changed = file;
      changed.remove(t.name);
      const bool bias = t.name.ends_with(".bias");
      ASSERT_EQ(faults(changed).size(), bias ? 0 : 1) << t.name;
      if (!bias) {
        EXPECT_EQ(faults(changed)[0].name, t.name);
        EXPECT_EQ(faults(changed)[0].code, "gguf-tensor");
      }
      changed = file;
      for (TensorSpec& other : changed.tensors)
        if (other.name == t.name) other.shape.back() += 64;
      // Without the key vocab_size the table of embeddings gives the number of words.
      ASSERT_EQ(faults(changed).size(), 1) << t.name;
      EXPECT_EQ(faults(changed)[0].name, t.name);
      EXPECT_NE(faults(changed)[0].text.find("must be ["), std::string::npos);
    }
  }
  EXPECT_EQ(files, 9);
}

TEST_F(GgufForeign, GateOfASharedExpertHasOneRow) {
  config_of(whole_file("experts", "qwen2moe"));
  EXPECT_EQ(LoadedModel(dir / "out").at("model.layers.0.mlp.shared_expert_gate.weight").shape,
            (std::vector<std::int64_t>{1, 64}));
}

TEST_F(GgufForeign, AbsentHeadsAreNamed) {
  ForeignFile file = whole_file("dense", "llama");
  file.keys.erase("attention.head_count");
  file.write(dir / "m.gguf");
  expect_error<FormatError>([&] { convert(dir / "m.gguf", dir / "out", "bf16"); },
                            {"m.gguf: has no key 'llama.attention.head_count'"});
}

/// The factors of head_dim 128, theta 500000, factor 8 and an original length of 8192.
TEST_F(GgufForeign, RopeFreqsBecomeLlama3Scaling) {
  ForeignFile file = whole_file("dense", "llama");
  for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count"})
    file.keys[key] = new_u32(128);
  for (const char* module : {"attn_q", "attn_k", "attn_v"}) file.reshape(module, {512, 64});
  file.reshape("attn_output", {64, 512});
  file.keys["rope.freq_base"] = new_f32(500000);
  const Json expected = {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}};
  std::vector<float> factors;
  for (int i = 0; i < 64; ++i) {
    const double wavelength = 2 * 3.14159265358979 * std::pow(500000.0, i / 64.0);
    const double smooth = (8192 / wavelength - 1) / 3;
    factors.push_back(static_cast<float>(smooth >= 1   ? 1
                                         : smooth <= 0 ? 8
                                                       : 1 / ((1 - smooth) / 8 + smooth)));
  }
  EXPECT_EQ(config_of(file, factors)["rope_scaling"], expected);
  EXPECT_FALSE(config_of(file, std::vector<float>(64, 1.0f)).contains("rope_scaling"));
  factors[40] += 1;
  refused(file, {"'rope_freqs.weight': 64 factors up to", "Llama 3's rule"}, factors);
  refused(file, {"'rope_freqs.weight': 2 factors"}, {1, 8});
}

/// From one GGUF file to another the keys themselves are copied.
TEST_F(GgufForeign, KeysWithoutPlaceStayInGguf) {
  ForeignFile file = whole_file("dense", "llama");
  file.keys["attention.scale"] = new_f32(0.25);
  file.write(dir / "m.gguf");
  quantize_checkpoint(dir / "m.gguf", dir / "n.gguf", {"--format", "gguf"});
  EXPECT_NE(File::open(dir / "n.gguf").header().find("llama.attention.scale"), nullptr);
}

TEST(GgufOfAnotherProgram, BecomesTheModelAgain) {
  const TempDir dir;
  Json source = llama_config();
  source["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", 4.0},
                            {"original_max_position_embeddings", 512},
                            {"beta_fast", 24.0}};
  write_llama(dir / "source", source);
  quantize_checkpoint(dir / "source", dir / "a");
  convert(dir / "a", dir / "m.gguf", "gguf");
  // The file as another program would write it: without our keys, without scales that are 1.
  const File m = File::open(dir / "m.gguf");
  std::vector<NewEntry> entries;
  for (const Entry& e : m.header().entries) {
    if (e.key.starts_with("nvfp4.")) continue;
    entries.push_back({e.key, {.type = e.value.type, .value = e.value.value}});
  }
  std::vector<TensorSpec> specs;
  std::vector<std::string> stored;
  for (const TensorInfo& t : m.header().tensors) {
    if (t.name.ends_with(".input_scale")) continue;
    stored.push_back(t.name);
    std::string name = t.name;
    // Some converters use this name.
    if (name.ends_with("attn_q.scale")) name.insert(name.rfind('.'), ".weight");
    specs.push_back({name, t.type, t.shape});
  }
  Writer writer(dir / "foreign.gguf", entries, specs);
  for (std::size_t i = 0; i < specs.size(); ++i) writer.write(i, 0, bytes_of(m, stored[i]));
  writer.commit();
  const QuantizeReport report = convert(dir / "foreign.gguf", dir / "b", "modelopt");
  EXPECT_TRUE(says(report.warnings, "config.json is made of the file's keys"));
  const Json config = Json::parse(read_text(dir / "b" / "config.json"));
  for (const auto& [key, value] : source.items()) EXPECT_EQ(config.at(key), value) << key;
  const LoadedModel a(dir / "a"), b(dir / "b");
  for (const auto& [name, tensor] : a.tensors) {
    if (name.ends_with(".input_scale")) continue;
    ASSERT_TRUE(b.has(name)) << name;
    const bool norm = name.find("norm") != name.npos;
    EXPECT_EQ(b.at(name).dtype, norm ? safetensors::DType::f32 : tensor.dtype) << name;
    if (!norm) {
      EXPECT_EQ(b.at(name).bytes, tensor.bytes) << name;
    }
  }
  EXPECT_EQ(config.at("quantization_config").at("quant_algo"), "W4A16_NVFP4");
}

}  // namespace nvfp4::gguf
