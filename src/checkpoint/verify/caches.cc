// Compares the scales of cached keys and values with the configuration of the cache.
#include <map>

#include "checkpoint/families/select.h"
#include "checkpoint/source/cache.h"
#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// The projections and cache scales of one attention.
struct Cache {
  bool keys = false, values = false;            ///< has k_proj, v_proj
  bool key_scale = false, value_scale = false;  ///< has the scales of their outputs
};

std::map<std::string, Cache> caches_of(const Subject& subject) {
  constexpr std::string_view kKeys = ".k_proj", kValues = ".v_proj";
  std::map<std::string, Cache> caches;
  const CacheScales scales(subject.tensors, {subject.model_type}, true);
  for (const LogicalTensor& t : subject.tensors) {
    if (const auto scale = scales.find(t)) {
      Cache& cache = caches[scale->attention];
      (scale->key ? cache.key_scale : cache.value_scale) = true;
      continue;
    }
    const std::string module = t.module();
    const bool keys = module.ends_with(kKeys);
    if (!keys && !module.ends_with(kValues)) continue;
    // Keys and values of towers are not cached.
    if (classify(t.plain_info(), subject.model_type).kind != "linear") continue;
    Cache& cache = caches[module.substr(0, module.size() - kKeys.size())];
    (keys ? cache.keys : cache.values) = true;
  }
  return caches;
}

/// Reports whether the configuration caches keys and values in a type with stored scales.
bool has_scales(const Declared* declared) {
  if (declared == nullptr || cache_type(*declared).name.empty()) return false;
  const auto& cache = declared->kv_cache;
  return !cache.is_object() || !cache.contains("dynamic") || cache["dynamic"] != true;
}

}  // namespace

void check_caches(const Subject& subject, Findings& findings) {
  if (!subject.folder || !subject.complete) return;
  const bool wanted = has_scales(subject.in_hf_quant ? &*subject.in_hf_quant : nullptr) ||
                      has_scales(subject.in_config ? &*subject.in_config : nullptr);
  std::size_t scales = 0, lacking = 0;
  std::string first, first_lacking;
  for (const auto& [attention, cache] : caches_of(subject)) {
    if (cache.key_scale || cache.value_scale) {
      if (scales++ == 0) first = attention;
    }
    const bool whole = cache.key_scale && cache.value_scale;
    const bool any = cache.key_scale || cache.value_scale || (cache.keys && cache.values);
    if (any && !whole && lacking++ == 0) first_lacking = attention;
  }
  if (scales == 0 && lacking == 0) return;
  if (!wanted) {
    if (scales > 0)
      findings.add("cache-scale-undeclared", first,
                   "{} has scales of keys or values, and no configuration declares "
                   "their cache",
                   first);
  } else if (scales == 0) {
    findings.add("cache-scale-missing", first_lacking,
                 "none of {} attentions has scales of keys and values, such as {}", lacking,
                 first_lacking);
  } else if (lacking > 0) {
    findings.add("cache-scale-partly", first_lacking,
                 "{} attentions lack a scale of keys or values that others have: {}{}", lacking,
                 first_lacking, lacking > 1 ? ", ..." : "");
  }
}

}  // namespace nvfp4::checkpoint
