#pragma once
#include "nvfp4/format.h"
#include "simt.h"
namespace nvfp4::cuda::ptx {
inline std::uint32_t cvt_e4m3x2_f16x2(std::uint32_t halves) {
  const auto code = [&](unsigned shift) {
    const FP16 v{static_cast<std::uint16_t>(halves >> shift)};
    return std::uint32_t{E4M3::from_float(v.to_float()).bits};
  };
  return code(0) | code(16) << 8;
}
}  // namespace nvfp4::cuda::ptx
