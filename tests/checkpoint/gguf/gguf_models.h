#pragma once

#include "checkpoint/base/json.h"
#include "checkpoint/gguf/gguf_bytes.h"
#include "checkpoint/gguf/header.h"
#include "checkpoint/models.h"
#include "testing.h"

/// Small models whose config.json says what a GGUF file needs.
namespace nvfp4::gguf {

inline Json llama_config() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 64},
          {"intermediate_size", 128},
          {"max_position_embeddings", 2048},
          {"num_attention_heads", 4},
          {"num_hidden_layers", 2},
          {"num_key_value_heads", 2},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"vocab_size", 96}};
}

inline void write_json(const std::filesystem::path& path, const Json& json) {
  write_text(path, json.dump(2) + "\n");
}

/// Two layers in three shards; heads of 16 rows.
inline void write_llama(const std::filesystem::path& folder, const Json& config = llama_config()) {
  write_tiny_llama(folder);
  write_json(folder / "config.json", config);
  std::filesystem::remove(folder / "tokenizer.json");
}

/// One layer, `experts` experts; the norms of q and k are F16, the router is F32.
inline void write_qwen3_moe(const std::filesystem::path& folder, int experts = 3) {
  using enum safetensors::DType;
  std::vector<TestTensor> t;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape,
                       safetensors::DType dtype = bf16) {
    t.push_back(random_tensor(name, std::move(shape), dtype));
  };
  const std::string p = "model.layers.0.";
  add("model.embed_tokens.weight", {32, 64});
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
    add(p + name + ".weight", {64, 64});
  add(p + "self_attn.o_proj.weight", {64, 64});
  for (const char* name : {"self_attn.q_norm", "self_attn.k_norm"})
    add(p + name + ".weight", {16}, f16);
  for (const char* name : {"input_layernorm", "post_attention_layernorm"})
    add(p + name + ".weight", {64});
  add(p + "mlp.gate.weight", {experts, 64}, f32);
  for (int e = experts - 1; e >= 0; --e) {  // not in their order
    const std::string m = p + "mlp.experts." + std::to_string(e) + ".";
    add(m + "gate_proj.weight", {128, 64});
    add(m + "up_proj.weight", {128, 64});
    add(m + "down_proj.weight", {64, 128});
  }
  add("model.norm.weight", {64});
  add("lm_head.weight", {32, 64});
  Json config = llama_config();
  config.update({{"architectures", {"Qwen3MoeForCausalLM"}},
                 {"model_type", "qwen3_moe"},
                 {"head_dim", 16},
                 {"moe_intermediate_size", 128},
                 {"num_hidden_layers", 1},
                 {"num_experts", experts},
                 {"num_experts_per_tok", 2},
                 {"num_key_value_heads", 4},
                 {"norm_topk_prob", true},
                 {"vocab_size", 32}});
  write_model(folder, {t}, "");
  write_json(folder / "config.json", config);
}

/// The bytes of a tensor of a file.
inline std::vector<std::byte> bytes_of(const File& file, const std::string& name) {
  const TensorInfo* t = file.find(name);
  if (t == nullptr) throw std::runtime_error("no tensor " + name);
  std::vector<std::byte> bytes(t->bytes);
  file.read(*t, 0, bytes);
  return bytes;
}

inline std::vector<float> floats_of(const File& file, const std::string& name) {
  const std::vector<std::byte> bytes = bytes_of(file, name);
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Changes bytes of a tensor in the file itself.
template <class Edit>
void edit_tensor(const std::filesystem::path& path, const std::string& name, Edit edit) {
  std::uint64_t begin = 0;
  std::size_t size = 0;
  {
    const File file = File::open(path);
    begin = file.find(name)->begin;
    size = file.find(name)->bytes;
  }
  std::string content = read_text(path);
  edit(std::span(reinterpret_cast<std::uint8_t*>(content.data() + begin), size));
  write_text(path, content);
}

}  // namespace nvfp4::gguf
