#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/formats/logical_tensor.h"

/// The declarations and scales of a model's KV cache.
namespace nvfp4::checkpoint {

/// The form of keys and values in the cache.
struct CacheType {
  /// The declared type: "FP8" (one fixed scale for keys and one for values), "NVFP4", or another
  /// text as declared. Empty: not quantized.
  std::string name;
  bool is_known = true;  ///< true for "FP8", "NVFP4" and an empty name
};
CacheType cache_type(const Declared& declared);

/// Reports whether one of the two configurations declares the cache.
bool declares_cache(const std::optional<Declared>& config, const std::optional<Declared>& hf_quant);

/// The tensors of a model that are scales of the KV cache. They are single floats of an attention
/// that produces keys and values and is in no tower. Other tensors may have such a name, for
/// instance a learned factor of a gate.
class CacheScales {
 public:
  CacheScales() = default;
  /// Finds the attentions. `declared`: a configuration declares the cache. An attention is then
  /// also known by its own name, whatever the names of its projections.
  CacheScales(std::span<const LogicalTensor> tensors, const std::vector<std::string>& model_types,
              bool declared);

  std::optional<CacheScale> find(const LogicalTensor& tensor) const;

 private:
  std::set<std::string, std::less<>> attentions_;
};

}  // namespace nvfp4::checkpoint
