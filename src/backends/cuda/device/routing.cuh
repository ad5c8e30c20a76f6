#pragma once

#include "nvfp4/activation.h"

/// Reads the experts of a routing.
namespace nvfp4::cuda {

__device__ inline std::int64_t load_index(const void* data, IndexType type, std::int64_t i) {
  switch (type) {
    case IndexType::i8:
      return static_cast<const std::int8_t*>(data)[i];
    case IndexType::u8:
      return static_cast<const std::uint8_t*>(data)[i];
    case IndexType::i16:
      return static_cast<const std::int16_t*>(data)[i];
    case IndexType::u16:
      return static_cast<const std::uint16_t*>(data)[i];
    case IndexType::i32:
      return static_cast<const std::int32_t*>(data)[i];
    case IndexType::u32:
      return static_cast<const std::uint32_t*>(data)[i];
    default:
      return static_cast<const std::int64_t*>(data)[i];
  }
}

/// Returns the expert of a token's choice, or -1 if the id is not in [0, experts).
__device__ __forceinline__ int expert_at(const Routing& routing, std::int64_t token,
                                         std::int64_t choice, std::int64_t experts) {
  const std::int64_t id =
      load_index(routing.ids, routing.id_type, token * routing.id_stride + choice);
  return id >= 0 && id < experts ? static_cast<int>(id) : -1;
}

}  // namespace nvfp4::cuda
