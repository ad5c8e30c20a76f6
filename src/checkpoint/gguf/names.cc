#include "checkpoint/gguf/names.h"

#include <algorithm>

namespace nvfp4::gguf {
namespace {

constexpr bool kScaled = true;

using Group = std::span<const NamePair>;

constexpr NamePair kEnds[] = {{"model.embed_tokens", "token_embd"},
                              {"model.norm", "output_norm"},
                              {"lm_head", "output", kScaled}};
constexpr NamePair kNorms[] = {{"model.layers.{l}.input_layernorm", "blk.{l}.attn_norm"},
                               {"model.layers.{l}.post_attention_layernorm", "blk.{l}.ffn_norm"}};
constexpr NamePair kAttention[] = {
    {"model.layers.{l}.self_attn.q_proj", "blk.{l}.attn_q", kScaled},
    {"model.layers.{l}.self_attn.k_proj", "blk.{l}.attn_k", kScaled},
    {"model.layers.{l}.self_attn.v_proj", "blk.{l}.attn_v", kScaled},
    {"model.layers.{l}.self_attn.o_proj", "blk.{l}.attn_output", kScaled}};
constexpr NamePair kHeadNorms[] = {{"model.layers.{l}.self_attn.q_norm", "blk.{l}.attn_q_norm"},
                                   {"model.layers.{l}.self_attn.k_norm", "blk.{l}.attn_k_norm"}};
constexpr NamePair kLatentAttention[] = {
    {"model.layers.{l}.self_attn.q_proj", "blk.{l}.attn_q", kScaled},
    {"model.layers.{l}.self_attn.q_a_proj", "blk.{l}.attn_q_a"},
    {"model.layers.{l}.self_attn.q_a_layernorm", "blk.{l}.attn_q_a_norm"},
    {"model.layers.{l}.self_attn.q_b_proj", "blk.{l}.attn_q_b"},
    {"model.layers.{l}.self_attn.kv_a_proj_with_mqa", "blk.{l}.attn_kv_a_mqa"},
    {"model.layers.{l}.self_attn.kv_a_layernorm", "blk.{l}.attn_kv_a_norm"},
    {"model.layers.{l}.self_attn.kv_b_proj", "blk.{l}.attn_kv_b"},
    {"model.layers.{l}.self_attn.o_proj", "blk.{l}.attn_output", kScaled}};
constexpr NamePair kMlp[] = {{"model.layers.{l}.mlp.gate_proj", "blk.{l}.ffn_gate", kScaled},
                             {"model.layers.{l}.mlp.up_proj", "blk.{l}.ffn_up", kScaled},
                             {"model.layers.{l}.mlp.down_proj", "blk.{l}.ffn_down", kScaled}};
constexpr NamePair kExperts[] = {
    {"model.layers.{l}.mlp.gate", "blk.{l}.ffn_gate_inp"},
    {"model.layers.{l}.mlp.experts.{e}.gate_proj", "blk.{l}.ffn_gate_exps", kScaled},
    {"model.layers.{l}.mlp.experts.{e}.up_proj", "blk.{l}.ffn_up_exps", kScaled},
    {"model.layers.{l}.mlp.experts.{e}.down_proj", "blk.{l}.ffn_down_exps", kScaled}};
constexpr NamePair kSharedExpert[] = {
    {"model.layers.{l}.mlp.shared_expert_gate", "blk.{l}.ffn_gate_inp_shexp"},
    {"model.layers.{l}.mlp.shared_expert.gate_proj", "blk.{l}.ffn_gate_shexp", kScaled},
    {"model.layers.{l}.mlp.shared_expert.up_proj", "blk.{l}.ffn_up_shexp", kScaled},
    {"model.layers.{l}.mlp.shared_expert.down_proj", "blk.{l}.ffn_down_shexp", kScaled}};
constexpr NamePair kDeepSeekExperts[] = {
    {"model.layers.{l}.mlp.gate.e_score_correction_bias", "blk.{l}.exp_probs_b.bias"},
    {"model.layers.{l}.mlp.shared_experts.gate_proj", "blk.{l}.ffn_gate_shexp", kScaled},
    {"model.layers.{l}.mlp.shared_experts.up_proj", "blk.{l}.ffn_up_shexp", kScaled},
    {"model.layers.{l}.mlp.shared_experts.down_proj", "blk.{l}.ffn_down_shexp", kScaled}};
constexpr NamePair kMixtralExperts[] = {
    {"model.layers.{l}.block_sparse_moe.gate", "blk.{l}.ffn_gate_inp"},
    {"model.layers.{l}.block_sparse_moe.experts.{e}.w1", "blk.{l}.ffn_gate_exps", kScaled},
    {"model.layers.{l}.block_sparse_moe.experts.{e}.w2", "blk.{l}.ffn_down_exps", kScaled},
    {"model.layers.{l}.block_sparse_moe.experts.{e}.w3", "blk.{l}.ffn_up_exps", kScaled}};

constexpr Group kLlama[] = {kEnds, kNorms, kAttention, kMlp};
constexpr Group kMixtral[] = {kEnds, kNorms, kAttention, kMixtralExperts};
constexpr Group kQwen2Moe[] = {kEnds, kNorms, kAttention, kMlp, kExperts, kSharedExpert};
constexpr Group kQwen3[] = {kEnds, kNorms, kAttention, kHeadNorms, kMlp};
constexpr Group kQwen3Moe[] = {kEnds, kNorms, kAttention, kHeadNorms, kMlp, kExperts};
constexpr Group kDeepSeek[] = {kEnds, kNorms, kLatentAttention, kMlp, kExperts, kDeepSeekExperts};

// Of several that share a GGUF name and have experts or not alike, the first is what a file of
// unknown origin is taken for.
constexpr Architecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", "llama", kLlama, true, false},
    {"mistral", "MistralForCausalLM", "llama", kLlama, true, false},
    {"mixtral", "MixtralForCausalLM", "llama", kMixtral, true, true},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", kLlama, false, false},
    {"qwen2_moe", "Qwen2MoeForCausalLM", "qwen2moe", kQwen2Moe, false, true},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", kQwen3, false, false},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "qwen3moe", kQwen3Moe, false, true},
    {"deepseek_v3", "DeepseekV3ForCausalLM", "deepseek2", kDeepSeek, false, true, true},
    {"deepseek_v2", "DeepseekV2ForCausalLM", "deepseek2", kDeepSeek, false, true, true},
};

/// Some names are whole as they are.
constexpr std::string_view kEndings[] = {".weight", ".bias", ""};

struct Numbers {
  std::int64_t layer = -1, expert = -1;
};

/// Whether a name is the pattern with numbers in it.
bool matches(std::string_view pattern, std::string_view name, Numbers& numbers) {
  while (!pattern.empty()) {
    if (pattern.front() != '{') {
      if (name.empty() || name.front() != pattern.front()) return false;
      name.remove_prefix(1);
      pattern.remove_prefix(1);
      continue;
    }
    std::int64_t& number = pattern[1] == 'l' ? numbers.layer : numbers.expert;
    std::size_t digits = 0;
    number = 0;
    for (; digits < name.size() && digits < 7 && name[digits] >= '0' && name[digits] <= '9';
         ++digits)
      number = 10 * number + (name[digits] - '0');
    if (digits == 0 || (digits > 1 && name.front() == '0')) return false;
    name.remove_prefix(digits);
    pattern.remove_prefix(3);
  }
  return name.empty();
}

std::string filled(std::string_view pattern, const Numbers& numbers) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '{') {
      out += pattern[i];
      continue;
    }
    out += std::to_string(pattern[i + 1] == 'l' ? numbers.layer : numbers.expert);
    i += 2;
  }
  return out;
}

const NamePair* find_pair(const Architecture& architecture, std::string_view NamePair::*side,
                          std::string_view module, Numbers& numbers) {
  for (const Group group : architecture.modules)
    for (const NamePair& pair : group) {
      numbers = {};
      if (matches(pair.*side, module, numbers)) return &pair;
    }
  return nullptr;
}

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view model_type) {
  const auto* const found =
      std::ranges::find(kArchitectures, model_type, &Architecture::model_type);
  return found == std::end(kArchitectures) ? nullptr : found;
}

std::optional<Place> place_of(const Architecture& architecture, std::string_view model_name) {
  for (const std::string_view ending : kEndings) {
    if (!model_name.ends_with(ending)) continue;
    const std::string_view module = model_name.substr(0, model_name.size() - ending.size());
    Numbers numbers;
    const NamePair* pair = find_pair(architecture, &NamePair::model, module, numbers);
    if (pair == nullptr) continue;
    Place place;
    place.file_name = filled(pair->file, numbers) + std::string(ending);
    place.layer = numbers.layer;
    place.expert = numbers.expert;
    place.query = pair->file.ends_with(".attn_q");
    place.key = pair->file.ends_with(".attn_k");
    place.scaled = pair->scaled && ending == ".weight";
    return place;
  }
  return std::nullopt;
}

std::optional<std::string> model_name_of(const Architecture& architecture,
                                         std::string_view file_name, std::int64_t expert) {
  for (const std::string_view ending : kEndings) {
    if (!file_name.ends_with(ending)) continue;
    const std::string_view module = file_name.substr(0, file_name.size() - ending.size());
    Numbers numbers;
    const NamePair* pair = find_pair(architecture, &NamePair::file, module, numbers);
    if (pair == nullptr) continue;
    numbers.expert = expert;
    return filled(pair->model, numbers) + std::string(ending);
  }
  return std::nullopt;
}

bool stacks_experts(std::string_view file_name) {
  return file_name.ends_with("_exps.weight") || file_name.ends_with("_exps.bias");
}

}  // namespace nvfp4::gguf
