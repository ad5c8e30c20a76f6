#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "nvfp4/matrix.h"
namespace nvfp4::cuda::ptx {
/// Word of lane 4g + q of matrix i: row g, columns 2q and 2q + 1 (source: PTX ISA, "ldmatrix").
inline uint4 ldmatrix_x4(std::uint32_t address) {
  auto& words = emulated::warp_words().of;
  const unsigned lane = threadIdx.x % 32;
  words[lane][0] = address;
  emulated::warp_barrier();
  std::uint32_t v[4];
  for (unsigned i = 0; i < 4; ++i)
    std::memcpy(&v[i], emulated::shared_memory() + words[8 * i + lane / 4][0] + lane % 4 * 4, 4);
  emulated::warp_barrier();
  return {v[0], v[1], v[2], v[3]};
}
/// A word has kOfWord elements: two of 16 bits or four of E4M3.
template <int kOfWord, class Element>
void multiply_words(float* d, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                    const Element& element) {
  auto& words = emulated::warp_words().of;
  const unsigned lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  std::memcpy(words[lane], a, 16);
  words[lane][4] = b0;
  words[lane][5] = b1;
  emulated::warp_barrier();
  for (unsigned r = 0; r < 4; ++r) {
    double sum = d[r];
    for (unsigned word = 0; word < 8; ++word)
      for (unsigned i = 0; i < kOfWord; ++i) {
        const unsigned bit = i * (32 / kOfWord);
        const float x = element(words[4 * g + word % 4][(r >> 1) + 2 * (word / 4)] >> bit);
        const float y = element(words[4 * (2 * q + (r & 1)) + word % 4][4 + word / 4] >> bit);
        sum += static_cast<double>(x) * y;
      }
    d[r] = static_cast<float>(sum);
  }
  emulated::warp_barrier();
}
/// A: register r has row g + 8 (r & 1), columns 2q + 8 (r >> 1) and the next; B: register r column
/// g, rows 2q + 8r and the next; D: register r row g + 8 (r >> 1), column 2q + (r & 1) (source: PTX
/// ISA, "mma.m16n8k16").
template <DType kType>
void mma_m16n8k16(float* d, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  multiply_words<2>(d, a, b0, b1, [](std::uint32_t word) {
    const auto bits = static_cast<std::uint16_t>(word);
    return kType == DType::bf16 ? BF16{bits}.to_float() : FP16{bits}.to_float();
  });
}
/// The same with four elements in place of two (source: PTX ISA, "mma.m16n8k32").
inline void mma_m16n8k32_e4m3(float* d, const std::uint32_t (&a)[4], std::uint32_t b0,
                              std::uint32_t b1) {
  multiply_words<4>(d, a, b0, b1, [](std::uint32_t word) {
    return E4M3{static_cast<std::uint8_t>(word)}.to_float();
  });
}
}  // namespace nvfp4::cuda::ptx
