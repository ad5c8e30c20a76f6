#include "checkpoint/source/cache.h"

#include "checkpoint/base/json_members.h"
#include "checkpoint/families/family.h"
#include "checkpoint/families/select.h"

namespace nvfp4::checkpoint {
namespace {

/// The projections that produce keys or values, alone or with queries, and the modules that contain
/// them.
constexpr std::string_view kMakers =
    "k_proj v_proj kv_proj qkv_proj qkv Wqkv wqkv W_pack query_key_value c_attn wk wv kv_a_proj "
    "kv_a_proj_with_mqa kv_b_proj wkv_a wkv_b";
constexpr std::string_view kAttentions = "*attn *attention";

std::string_view parent_of(std::string_view module) {
  const std::size_t dot = module.rfind('.');
  return dot == module.npos ? std::string_view() : module.substr(0, dot);
}

}  // namespace

CacheType cache_type(const Declared& declared) {
  const Json& cache = declared.kv_cache;
  const bool is_empty_text = cache.is_string() && cache.get_ref<const std::string&>().empty();
  const bool is_empty_object = cache.is_object() && cache.empty();
  if (cache.is_null() || cache == false || cache == "none" || is_empty_text || is_empty_object)
    return {};
  const auto is = [&](const char* key, const auto& value, bool absent) {
    const Json& member = member_of(cache, key);
    return member.is_null() ? absent : member == value;
  };
  std::string said = cache.is_string() ? cache.get<std::string>() : cache.dump();
  if (cache.is_object()) {
    const bool plain =
        is("type", "float", false) && is("dynamic", false, true) && is("symmetric", true, true);
    if (plain && is("num_bits", 8, false) && is("strategy", "tensor", true)) said = "FP8";
    if (plain && is("num_bits", 4, false)) said = "NVFP4";
  }
  const bool known = said == "FP8" || said == "NVFP4";
  return {std::move(said), known};
}

bool declares_cache(const std::optional<Declared>& config,
                    const std::optional<Declared>& hf_quant) {
  return (config && !cache_type(*config).name.empty()) ||
         (hf_quant && !cache_type(*hf_quant).name.empty());
}

CacheScales::CacheScales(std::span<const LogicalTensor> tensors,
                         const std::vector<std::string>& model_types, bool declared) {
  const std::vector<const Family*> families = families_of(model_types);
  for (const LogicalTensor& t : tensors) {
    const std::string module = t.module();
    const std::string_view attention = parent_of(module);
    if (t.shape.size() != 2 || attention.empty() || attentions_.contains(attention)) continue;
    if (!matches_one(kMakers, Where::last, split_name(module)) &&
        !(declared && matches_one(kAttentions, Where::last, split_name(attention))))
      continue;
    const std::string kind = classify(t.plain_info(), families).kind;
    if (kind != "vision" && kind != "audio") attentions_.emplace(attention);
  }
}

std::optional<CacheScale> CacheScales::find(const LogicalTensor& t) const {
  const bool number = t.elements() == 1 && t.shape.size() <= 2;
  if (!t.is_plain() || !number || !is_float(t.data.info->dtype)) return std::nullopt;
  std::optional<CacheScale> scale = cache_scale(t.name);
  if (scale && !attentions_.contains(scale->attention)) scale.reset();
  return scale;
}

}  // namespace nvfp4::checkpoint
