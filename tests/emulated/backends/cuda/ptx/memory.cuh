#pragma once
#include "simt.h"
namespace nvfp4::cuda::ptx {
inline std::uint32_t cvta_shared(const void* p) {
  return static_cast<std::uint32_t>(static_cast<const std::uint8_t*>(p) -
                                    emulated::shared_memory());
}
template <class T>
T ld_shared(std::uint32_t address) {
  T v;
  std::memcpy(&v, emulated::shared_memory() + address, sizeof v);
  return v;
}
template <class T>
T ld_global_nc(const void* from) {
  T v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
}  // namespace nvfp4::cuda::ptx
