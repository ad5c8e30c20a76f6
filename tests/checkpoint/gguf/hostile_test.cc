// Files that say more than they hold.
#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/config.h"
#include "checkpoint/gguf/gguf_bytes.h"
#include "checkpoint/gguf/gguf_models.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/tensor_file.h"

namespace nvfp4::gguf::hostile_test {

std::string nested(int depth) {
  std::string open, close;
  for (int i = 0; i < depth; ++i) {
    open += R"({"a": )";
    close += "}";
  }
  return open + "1" + close;
}

/// A Llama of one tensor.
void write_file(const fs::path& path, std::vector<NewEntry> more, const TensorSpec& tensor) {
  std::vector<NewEntry> entries = {{"general.architecture", new_text("llama")},
                                   {"llama.attention.head_count", new_u32(4)}};
  entries.insert(entries.end(), more.begin(), more.end());
  Writer writer(path, entries, {tensor});
  const std::vector<std::byte> ones(*tensor_bytes(*tensor.type, tensor.shape), std::byte{1});
  writer.write(0, 0, ones);
  writer.commit();
}

/// Writes a whole Llama with other entries of ours.
void write_whole(const TempDir& dir, const std::vector<NewEntry>& more) {
  if (!fs::exists(dir / "llama.gguf")) {
    write_llama(dir / "llama");
    quantize_checkpoint(dir / "llama", dir / "llama.gguf", {"--format", "gguf"});
  }
  const File file = File::open(dir / "llama.gguf");
  std::vector<NewEntry> entries = more;
  for (const Entry& e : file.header().entries)
    if (!e.key.starts_with("nvfp4."))
      entries.push_back({e.key, {.type = e.value.type, .value = e.value.value}});
  std::vector<TensorSpec> specs;
  for (const TensorInfo& t : file.header().tensors) specs.push_back({t.name, t.type, t.shape});
  Writer writer(dir / "m.gguf", entries, specs);
  for (std::size_t i = 0; i < specs.size(); ++i) writer.write(i, 0, bytes_of(file, specs[i].name));
  writer.commit();
}

/// Everything that opens a model refuses it.
void expect_refused(const TempDir& dir, std::initializer_list<std::string_view> parts) {
  const fs::path file = dir / "m.gguf";
  expect_error<FormatError>([&] { convert(file, dir / "out", "bf16"); }, parts);
  expect_error<FormatError>([&] { quantize_checkpoint(file, dir / "out"); }, parts);
  expect_error<FormatError>([&] { compare_checkpoints(file, file); }, parts);
  EXPECT_FALSE(fs::exists(dir / "out"));
}

struct GgufHostile : FolderTest {};

TEST_F(GgufHostile, JsonThatIsNestedTooDeepIsRefused) {
  const std::string deep = R"({"model_type": "llama", "quantization_config": )";
  write_whole(dir, {{"nvfp4.config", new_text(deep + nested(100'000) + "}")}});
  // compare needs no configuration that says anything: one that it cannot read is none.
  const std::initializer_list<std::string_view> parts = {"nested deeper than 128 levels"};
  expect_error<FormatError>([&] { convert(dir / "m.gguf", dir / "out", "bf16"); }, parts);
  expect_error<FormatError>([&] { quantize_checkpoint(dir / "m.gguf", dir / "out"); }, parts);
  EXPECT_FALSE(fs::exists(dir / "out"));
  EXPECT_NO_THROW(compare_checkpoints(dir / "m.gguf", dir / "m.gguf"));
  EXPECT_NO_THROW(findings_of(dir / "m.gguf"));
  EXPECT_NO_THROW(inspect_checkpoint({.path = dir / "m.gguf", .tensor = {}, .progress = {}}));
  write_whole(dir,
              {{"nvfp4.config", new_text("{}")}, {"nvfp4.metadata", new_text(nested(100'000))}});
  EXPECT_NO_THROW(convert(dir / "m.gguf", dir / "bf16", "bf16"));
}

TEST_F(GgufHostile, NestingIsCountedOutsideOfStrings) {
  EXPECT_TRUE(checkpoint::is_shallow_json(nested(128)));
  EXPECT_FALSE(checkpoint::is_shallow_json(nested(129)));
  EXPECT_TRUE(checkpoint::is_shallow_json("\"\\\"" + std::string(1000, '[') + "\""));
  EXPECT_FALSE(checkpoint::is_shallow_json("\"\\\\\"" + std::string(1000, '[')));
  std::string wide = "[";
  for (int i = 0; i < 1000; ++i) wide += "[],";
  EXPECT_TRUE(checkpoint::is_shallow_json(wide + "{}]"));
}

TEST_F(GgufHostile, MatricesOfOneDimensionAreRefused) {
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.bias", "blk.0.ffn_up.weight"}) {
    const TempDir dir;
    write_file(dir / "m.gguf", {}, {name, find_type(kNvfp4), {64}});
    expect_refused(dir, {name, "NVFP4 with 1 dimensions", "must have 2 or 3"});
  }
}

TEST_F(GgufHostile, ArrayInAHoleTakesNoMemory) {
  GgufBytes bytes(0, 2);
  bytes.key("general.architecture", 8).text("llama");
  bytes.key("nvfp4.bf16", 9).number(std::uint32_t{8}).number(std::uint64_t{1'000'000});
  write_text(dir / "m.gguf", bytes.str());
  fs::resize_file(dir / "m.gguf", bytes.str().size() + 8'000'000 + 64);
  expect_refused(dir, {"key 'nvfp4.bf16'", "an array of 1000000, at most 0"});
}

TEST_F(GgufHostile, TextsInAHoleHaveALimit) {
  GgufBytes bytes(0, 3);
  const std::uint64_t each = 40 << 20;
  bytes.key("general.architecture", 8).text("llama");
  bytes.key("a", 8).number(each);
  write_text(dir / "m.gguf", bytes.str());
  GgufBytes second;
  const std::size_t start = second.str().size();
  second.key("b", 8).number(each);
  std::string file = bytes.str() + std::string(each, '\0') + second.str().substr(start);
  write_text(dir / "m.gguf", file);
  fs::resize_file(dir / "m.gguf", file.size() + each);
  expect_refused(dir, {"key 'b'", "value of 41943040 bytes, at most"});
}

void write_stacks(const fs::path& path, int stacks, std::uint32_t experts) {
  GgufBytes bytes(static_cast<std::uint64_t>(stacks), 2);
  bytes.key("general.architecture", 8).text("qwen3moe");
  bytes.key("qwen3moe.expert_count", 4).number(experts);
  for (int i = 0; i < stacks; ++i)
    bytes.tensor("blk." + std::to_string(i) + ".ffn_up_exps.weight", {1, 1, experts}, 24,
                 static_cast<std::uint64_t>(i) * experts);
  write_text(path, bytes.str());
  fs::resize_file(path, bytes.str().size() + 64 + static_cast<std::uint64_t>(stacks) * experts);
}

TEST_F(GgufHostile, StacksThatMakeTooManyTensorsAreRefused) {
  write_stacks(dir / "m.gguf", 130, 4096);
  expect_refused(dir, {"'blk.128.ffn_up_exps.weight'", "more than 524288 tensors"});
  write_stacks(dir / "m.gguf", 1, 65'536);
  expect_refused(dir, {"'blk.0.ffn_up_exps.weight'", "must be 1 to 4096 experts"});
}

Json with(Json config, const Json& members) {
  config.update(members);
  return config;
}
std::vector<NewEntry> entries_of(const Json& config) {
  return gguf::entries_of(config, *architecture_of(config), "config.json");
}
Json nemotron_config() {
  return with(llama_config(), {{"model_type", "nemotron_h"},
                               {"hybrid_override_pattern", "M*-"},
                               {"head_dim", 16},
                               {"conv_kernel", 4},
                               {"ssm_state_size", 16},
                               {"n_groups", 2},
                               {"mamba_num_heads", 4},
                               {"mamba_head_dim", 16},
                               {"layer_norm_epsilon", 1e-4}});
}

TEST_F(GgufHostile, NumbersOfConfigJsonFitTheFile) {
  const Json nemotron = nemotron_config();
  Json gemma = with(llama_config(), {{"model_type", "gemma4_text"},
                                     {"head_dim", 16},
                                     {"global_head_dim", 32},
                                     {"sliding_window", 64},
                                     {"use_double_wide_mlp", true}});
  gemma["layer_types"] = Json::array();
  for (const char* type : {"sliding_attention", "full_attention"})
    gemma["layer_types"].push_back(type);
  Json headless = gemma;
  headless["global_head_dim"] = 0;
  EXPECT_NO_THROW(entries_of(nemotron));
  EXPECT_NO_THROW(entries_of(gemma));
  Json share = Json::object(), sliding = Json::object(), overrides = Json::object();
  share["partial_rotary_factor"] = 2;
  sliding["sliding_attention"] = share;
  overrides["1"]["head_dim"] = 65536;
  struct Case {
    Json config;
    const char* member;
    Json value;
    const char* text;
  };
  const Case cases[] = {
      {nemotron, "num_key_value_heads", 3000000000, " = 3000000000, must be from 0 to 2147483647"},
      {nemotron, "intermediate_size", 3000000000, " = 3000000000, must be from 0 to 2147483647"},
      {gemma, "intermediate_size", 1500000000, " = 1500000000, must be from 0 to 1073741823"},
      {gemma, "num_global_key_value_heads", -1, " = -1, must be from 0 to 2147483647"},
      {gemma, "global_head_dim", 65536, " = 65536, must be from 1 to 65535"},
      {headless, "per_layer_config", overrides, ".1.head_dim = 65536, must be from 1 to 65535"},
      {gemma, "rope_parameters", sliding,
       ".sliding_attention.partial_rotary_factor = 2, must be above 0 and at most 1"}};
  for (const Case& c : cases) {
    Json config = c.config;
    config[c.member] = c.value;
    const std::string text = std::string("config.json: ") + c.member + c.text;
    expect_error<FormatError>([&] { entries_of(config); }, {text});
  }
}

/// These are the values where config.json has none. The epsilon has its own key.
TEST_F(GgufHostile, NemotronHasTheDefaultsOfTransformers) {
  Json config = nemotron_config();
  for (const char* key : {"num_key_value_heads", "layer_norm_epsilon"}) config.erase(key);
  std::map<std::string, NewValue> entries;
  for (const NewEntry& e : entries_of(config)) entries[e.key] = e.value;
  EXPECT_EQ(entries.at("nemotron_h.attention.head_count_kv").numbers,
            (std::vector<std::int64_t>{0, 4, 0}));
  EXPECT_EQ(std::get<double>(entries.at("nemotron_h.attention.layer_norm_epsilon").value), 1e-5);
  EXPECT_FALSE(entries.contains("nemotron_h.attention.layer_norm_rms_epsilon"));
}

}  // namespace nvfp4::gguf::hostile_test
