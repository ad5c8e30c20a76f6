#pragma once
#include "backends/cuda/device/block.cuh"
#include "quantizers/encode_block.h"
namespace nvfp4::cuda {
/// By the definition.
struct Encoder {
  float divisor;
  explicit Encoder(float of) : divisor(of) {}
  std::uint32_t scale_code(float amax) const { return scale_for(amax, divisor, kSixth).bits; }
  uint2 operator()(const float* v, std::uint32_t code, bool) const {
    std::uint8_t codes[8];
    encode_elements(v, 16, E4M3{static_cast<std::uint8_t>(code)}, divisor, codes);
    return std::bit_cast<uint2>(codes);
  }
};
}  // namespace nvfp4::cuda
