#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/formats/cache_scales.h"
#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/logical_tensor.h"

/// What a model says of its cache of keys and values.
namespace nvfp4::checkpoint {

/// How keys and values are cached.
struct CacheType {
  std::string name;      ///< "FP8": one scale for keys, one for values, both fixed; "NVFP4"; or
                         ///< what else was said, as it was said. Empty: as they are
  bool is_known = true;  ///< one of the first two, or empty
};
CacheType cache_type(const Declared& declared);

/// Whether either says how they are.
bool declares_cache(const std::optional<Declared>& config, const std::optional<Declared>& hf_quant);

/// Which tensors of a model are such scales: single floats of an attention that makes keys and
/// values, and is in no tower. Others may have such a name: a learned factor of a gate, say.
class CacheScales {
 public:
  CacheScales() = default;
  /// `declared`: a configuration says how keys and values are cached. An attention is then known by
  /// its name alone, too, whatever its projections are called.
  CacheScales(std::span<const LogicalTensor> tensors, const std::vector<std::string>& model_types,
              bool declared);

  std::optional<CacheScale> find(const LogicalTensor& tensor) const;

 private:
  std::set<std::string, std::less<>> attentions_;
};

}  // namespace nvfp4::checkpoint
