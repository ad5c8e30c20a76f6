#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nvfp4::checkpoint {

/// The attention and the kind of a scale of cached keys or values.
struct CacheScale {
  std::string attention;  ///< "model.layers.0.self_attn"
  bool key = true;        ///< false: the scale of values
};

/// Returns the attention of a cache scale of any format, or null if the name is not that of one.
inline std::optional<CacheScale> cache_scale(std::string_view tensor) {
  constexpr std::string_view kKey = ".k_scale", kValue = ".v_scale";
  const bool key = tensor.ends_with(kKey);
  if (!key && !tensor.ends_with(kValue)) return std::nullopt;
  tensor.remove_suffix(kKey.size());
  const std::string_view projection = key ? ".k_proj" : ".v_proj";
  if (tensor.ends_with(projection)) tensor.remove_suffix(projection.size());
  return CacheScale{std::string(tensor), key};
}

}  // namespace nvfp4::checkpoint
