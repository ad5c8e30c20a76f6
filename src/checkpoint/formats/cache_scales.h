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
  // The last ones are those of Quark and of older versions of compressed-tensors.
  for (const std::string_view key : {".k_proj.k_scale", ".k_scale", ".k_proj.output_scale"})
    if (tensor.ends_with(key))
      return CacheScale{std::string(tensor.substr(0, tensor.size() - key.size())), true};
  for (const std::string_view value : {".v_proj.v_scale", ".v_scale", ".v_proj.output_scale"})
    if (tensor.ends_with(value))
      return CacheScale{std::string(tensor.substr(0, tensor.size() - value.size())), false};
  return std::nullopt;
}

}  // namespace nvfp4::checkpoint
