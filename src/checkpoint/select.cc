#include "checkpoint/select.h"

#include <algorithm>
#include <initializer_list>

#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

using Parts = std::vector<std::string_view>;

bool one_of(std::string_view x, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

bool contains(std::string_view text, std::string_view piece) {
  return text.find(piece) != std::string_view::npos;
}

template <class Predicate>
bool any_part(const Parts& parts, Predicate predicate) {
  return std::any_of(parts.begin(), parts.end(), predicate);
}

/// True if one of the last `n` parts satisfies the predicate.
template <class Predicate>
bool any_of_last(const Parts& parts, std::size_t n, Predicate predicate) {
  return std::any_of(parts.end() - static_cast<std::ptrdiff_t>(std::min(n, parts.size())),
                     parts.end(), predicate);
}

bool is_vision(const Parts& module) {
  return any_part(module,
                  [](std::string_view p) {
                    return p.starts_with("visual") || p.starts_with("vision") || p == "vit" ||
                           p == "vpm" || p.ends_with("projector") || p.starts_with("resampler") ||
                           one_of(p,
                                  {"image_encoder", "img_processor", "img_projection",
                                   "patch_merger", "modality_projection", "sam_model", "mlp_AR",
                                   "embed_vision", "aligner", "connector", "image_newline", "vte"});
                  }) ||
         module.front() == "mlp1";
}

bool is_audio(const Parts& module, std::string_view model_type) {
  return any_part(module,
                  [](std::string_view p) {
                    return p.starts_with("audio") || p.starts_with("speech") ||
                           one_of(p, {"sound_encoder", "whisper_encoder", "embed_audio", "apm",
                                      "talker", "token2wav", "code2wav"});
                  }) ||
         (model_type.starts_with("granite_speech") && module.front() == "encoder");
}

bool is_norm(const Parts& module) {
  const auto norm = [](std::string_view p) {
    return contains(p, "norm") || p == "ln" || p.starts_with("ln_") || p.ends_with("_ln") ||
           contains(p, "LayerNorm") || contains(p, "Norm");
  };
  // "norm1.linear": the projection of an adaptive norm.
  return norm(module.back()) ||
         (module.size() >= 2 && norm(module[module.size() - 2]) && contains(module.back(), "lin"));
}

bool is_modulation(const Parts& module) {
  return any_of_last(module, 2, [](std::string_view p) {
    return contains(p, "modulation") || p.starts_with("adaLN") || one_of(p, {"img_mod", "txt_mod"});
  });
}

bool is_head(const Parts& module) {
  const std::string_view last = module.back();
  return one_of(last, {"lm_head", "embed_out", "head", "score", "classifier", "qa_outputs"}) ||
         (one_of(last, {"output", "output_layer"}) && module.size() <= 2) ||
         (last == "proj_out" && module.size() == 1) ||
         (last == "ff_out" && module.size() >= 2 && module[module.size() - 2] == "transformer") ||
         (last == "linear" &&
          any_of_last(module, 3, [](std::string_view p) { return p.ends_with("final_layer"); }));
}

/// What takes the inputs of a diffusion model in, as its own repository names it.
bool is_diffusion_input(const Parts& module) {
  return any_part(module, [](std::string_view p) {
    return one_of(p, {"img_in", "txt_in", "time_in", "vector_in", "guidance_in"});
  });
}

bool is_embedding(const Parts& module) {
  return any_of_last(module, 3,
                     [](std::string_view p) {
                       return contains(p, "embed") || one_of(p, {"wte", "wpe"});
                     }) ||
         any_part(module, [](std::string_view p) { return p == "condition_embedder"; }) ||
         is_diffusion_input(module) || module.back() == "relative_attention_bias" ||
         (module.size() == 1 && module.back() == "shared");
}

/// Of embeddings: no module that multiplies by it.
bool is_table(const Parts& module) {
  const std::string_view last = module.back();
  return one_of(last, {"wte", "wpe", "relative_attention_bias", "shared"}) ||
         (contains(last, "embed") && !last.ends_with("embedder"));
}

/// The projections of Mamba-1, whose loaders build them plain. Mamba-2 has one of them only.
bool is_first_mamba(const Parts& module, std::string_view model_type) {
  if (module.size() < 2 || !one_of(module[module.size() - 2], {"mixer", "mamba"})) return false;
  return one_of(module.back(), {"x_proj", "dt_proj"}) ||
         (one_of(model_type, {"mamba", "falcon_mamba", "jamba"}) &&
          one_of(module.back(), {"in_proj", "out_proj"}));
}

bool is_router(const Parts& module) {
  return one_of(module.back(), {"gate", "router", "shared_expert_gate", "switch"}) ||
         any_of_last(module, 2, [](std::string_view p) { return contains(p, "router"); }) ||
         (module.back() == "wg" && module.size() >= 2 && module[module.size() - 2] == "gate");
}

/// The projection that joins hidden state and embedding in front of a multi-token prediction
/// block. Loaders build it as a plain layer.
bool is_mtp_joint(const Parts& module) {
  const std::string_view last = module.back();
  if (last == "eh_proj") return true;
  if (any_of_last(module, 2, [](std::string_view p) { return p == "mtp_linear_proj"; }))
    return true;
  return one_of(last, {"fc", "input_proj", "e_proj", "h_proj"}) &&
         any_part(module,
                  [](std::string_view p) { return p.starts_with("mtp") || contains(p, "nextn"); });
}

bool is_number(std::string_view p) {
  return !p.empty() && p.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_expert(const Parts& module) {
  for (std::size_t i = 0; i + 1 < module.size(); ++i)
    if (module[i] == "experts" && is_number(module[i + 1])) return true;
  return false;
}

bool is_stacked_experts(const safetensors::TensorInfo& t, const Parts& module) {
  return t.shape.size() == 3 && module.size() >= 2 && module[module.size() - 2] == "experts" &&
         one_of(module.back(),
                {"gate_up_proj", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"});
}

Selection keep(std::string kind, std::string reason, bool linear = true) {
  return {
      .quantize = false, .kind = std::move(kind), .reason = std::move(reason), .linear = linear};
}

/// Why the tensor can never become an NVFP4 matrix; empty if it can. The depth of stacked experts
/// depends on their orientation, which is not decided here.
std::string obstacle(const safetensors::TensorInfo& t, bool stacked) {
  if (!stacked && !t.name.ends_with(".weight")) return "not the .weight of a module";
  if (t.shape.size() != 2 && !stacked) return fmt::format("{}-D", t.shape.size());
  if (!is_float(t.dtype))
    return fmt::format("dtype {} is not BF16, F16 or F32", safetensors::dtype_name(t.dtype));
  if (std::find(t.shape.begin(), t.shape.end(), 0) != t.shape.end()) return "empty";
  if (!stacked && t.shape[1] % kBlock != 0)
    return fmt::format("{} columns, not a multiple of {}", t.shape[1], kBlock);
  return {};
}

}  // namespace

bool is_latent_projection(std::string_view name) {
  return one_of(split_name(module_of(name)).back(), {"kv_b_proj", "wkv_b"});
}

bool is_decay_projection(std::string_view name) {
  const Parts module = split_name(module_of(name));
  return module.size() >= 2 && module[module.size() - 2] == "linear_attn" &&
         one_of(module.back(), {"in_proj_a", "in_proj_b", "in_proj_ba"});
}

bool is_float(safetensors::DType dtype) {
  using enum safetensors::DType;
  return dtype == bf16 || dtype == f16 || dtype == f32;
}

DType matrix_dtype(safetensors::DType dtype) {
  return dtype == safetensors::DType::f32    ? DType::f32
         : dtype == safetensors::DType::bf16 ? DType::bf16
                                             : DType::f16;
}

Selection classify(const safetensors::TensorInfo& t, std::string_view model_type) {
  const Parts module = split_name(module_of(t.name));
  const std::string_view last = module.back();
  const std::size_t rank = t.shape.size();
  if (last == "bias" || last.ends_with("_bias") || last.ends_with(".bias"))
    return keep("bias", "biases stay in their dtype", false);
  if (is_vision(module)) return keep("vision", "vision towers and projectors are sensitive");
  if (is_audio(module, model_type))
    return keep("audio", "audio towers and projectors are sensitive");
  if (is_norm(module)) return keep("norm", "norms are small and sensitive", rank == 2);
  const bool stacked = is_stacked_experts(t, module);
  if (!stacked && (rank > 2 || contains(last, "conv")))
    return keep("convolution",
                rank > 2 ? fmt::format("{}-D, not a known expert layout", rank) : "convolution");
  if (one_of(model_type, {"gpt2", "openai-gpt", "imagegpt"}) && last.starts_with("c_"))
    return keep("convolution", "Conv1D stores [in, out]");
  if (is_head(module)) return keep("lm_head", "loaders expect an unquantized output head");
  if (last == "proj_out" && module.front() == "single_transformer_blocks")
    return keep("linear", "loaders that look for substrings exclude it with the model's proj_out");
  if (is_mtp_joint(module)) return keep("mtp", "loaders build it as a plain layer");
  if (is_router(module)) return keep("router", "routers and gates decide by small differences");
  if (is_modulation(module)) return keep("modulation", "it scales every activation");
  if (is_embedding(module))
    return is_table(module) ? keep("embedding", "a table, not a matrix product", false)
                            : keep("embedding", "it takes the model's inputs in");
  if (is_latent_projection(t.name))
    return keep("latent attention", "loaders take it apart, and multiply by its halves");
  if (is_first_mamba(module, model_type)) return keep("mamba", "loaders build it as a plain layer");
  if (is_decay_projection(t.name)) return keep("decay", "small, and it decides what is forgotten");
  if (any_part(module, [](std::string_view p) {
        return p.starts_with("lora_A") || p.starts_with("lora_B");
      }))
    return keep("adapter", "a thin matrix of an adapter");
  if (any_part(module, [](std::string_view p) { return p == "indexer"; }))
    return keep("indexer", "loaders expect an unquantized sparse attention indexer");
  if (rank < 2) return keep("vector", "scalars and vectors stay in their dtype", false);
  const std::string kind = stacked ? "stacked experts" : is_expert(module) ? "expert" : "linear";
  if (const std::string why = obstacle(t, stacked); !why.empty())
    return keep(t.name.ends_with(".weight") || stacked ? kind : "other", why,
                stacked || t.name.ends_with(".weight") ||
                    any_part(module, [](std::string_view p) { return p == "experts"; }));
  return {.quantize = true, .kind = kind, .reason = {}};
}

Selector::Selector(const std::vector<std::string>& ignore, const std::vector<std::string>& include,
                   std::string model_type)
    : ignore_(make_patterns(ignore)),
      include_(make_patterns(include)),
      ignore_used_(ignore.size()),
      include_used_(include.size()),
      forced_(include.size()),
      model_type_(std::move(model_type)) {}

Selection Selector::select(const safetensors::TensorInfo& tensor) {
  Selection s = classify(tensor, model_type_);
  bool ignored = false;
  for (std::size_t i = 0; i < ignore_.size(); ++i) {
    if (!ignore_[i].matches(tensor.name)) continue;
    ignore_used_[i] = true;
    if (s.quantize) {
      s.reason = "--ignore " + ignore_[i].text();
      s.ignored = true;
    }
    ignored = true;
    s.quantize = false;
  }
  if (ignored) return s;
  for (std::size_t i = 0; i < include_.size(); ++i) {
    if (!include_[i].matches(tensor.name)) continue;
    const std::string why =
        s.kind == "convolution" && tensor.shape.size() == 2 && s.reason.starts_with("Conv1D")
            ? s.reason
            : obstacle(tensor, s.kind == "stacked experts");
    require<ValueError>(why.empty() || !include_[i].exact(),
                        "--include {}: {} cannot be quantized: {}", include_[i].text(), tensor.name,
                        why);
    if (!why.empty()) continue;
    include_used_[i] = true;
    if (!s.quantize) forced_[i].push_back(fmt::format("{} ({})", module_of(tensor.name), s.kind));
    s.quantize = true;
    s.reason.clear();
  }
  return s;
}

bool Selector::ignores(const std::string& name) const {
  return std::ranges::any_of(ignore_, [&](const Pattern& p) { return p.matches(name); });
}

std::vector<std::string> Selector::warnings() const {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < ignore_.size(); ++i)
    if (!ignore_used_[i])
      lines.push_back(fmt::format("--ignore {}: matches no tensor", ignore_[i].text()));
  for (std::size_t i = 0; i < include_.size(); ++i)
    if (!include_used_[i])
      lines.push_back(
          fmt::format("--include {}: matches no tensor that can be quantized", include_[i].text()));
  for (std::size_t i = 0; i < include_.size(); ++i) {
    const auto& names = forced_[i];
    if (names.empty()) continue;
    const std::string more = names.size() == 1 ? "" : fmt::format(" and {} more", names.size() - 1);
    lines.push_back(fmt::format("--include {}: most loaders build {}{} unquantized",
                                include_[i].text(), names[0], more));
  }
  return lines;
}

}  // namespace nvfp4::checkpoint
