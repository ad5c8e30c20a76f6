#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "nvfp4/layout.h"
#include "nvfp4/matrix.h"
#include "quantizers/encode_block.h"

/// Sixteen consecutive elements in their stored type.
namespace nvfp4::cuda {

template <DType>
struct Block;  // 16-bit types: two elements a word
template <>
struct Block<DType::f32> {
  static constexpr int kWords = 16;
  static constexpr std::uint32_t kInfinity = 0x7F800000u;
  std::uint32_t words[kWords];

  __device__ float value(int i) const { return __uint_as_float(words[i]); }
  /// Returns the bits of the largest magnitude. They are above infinity if there is a NaN.
  __device__ std::uint32_t amax_bits() const {
    float m = 0;
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      asm("{ .reg .f32 a; abs.f32 a, %1; max.NaN.f32 %0, %0, a; }" : "+f"(m) : "f"(value(i)));
    return __float_as_uint(m) & 0x7FFFFFFFu;
  }
  /// Replaces every NaN by infinity, which has the same code. Returns amax_bits() without NaN.
  __device__ std::uint32_t replace_nans() {
    std::uint32_t m = 0;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const std::uint32_t magnitude = words[i] & 0x7FFFFFFFu;
      const bool is_nan = magnitude > kInfinity;
      m = max(m, is_nan ? 0 : magnitude);
      words[i] = is_nan ? kInfinity : words[i];
    }
    return m;
  }
  __device__ static float magnitude(std::uint32_t bits) { return __uint_as_float(bits); }
};

/// `Max` computes the larger magnitude of two elements: NaN if one is NaN, with any sign.
template <std::uint32_t kInf, class Max>
struct Block16Bit {
  static constexpr int kWords = 8;
  static constexpr std::uint32_t kInfinity = kInf;
  std::uint32_t words[kWords];

  __device__ std::uint32_t amax_bits() const {
    std::uint32_t m = words[0];
#pragma unroll
    for (int i = 1; i < kWords; ++i) m = Max::of(m, words[i]);
    return Max::of(m, __funnelshift_l(m, m, 16)) & 0x7FFFu;
  }
  __device__ std::uint32_t replace_nans() {
    std::uint32_t m = 0;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const std::uint32_t magnitudes = words[i] & 0x7FFF7FFFu;
      const std::uint32_t nan = __vcmpgtu2(magnitudes, kInfinity * 0x10001u);
      m = __vmaxu2(m, magnitudes & ~nan);
      words[i] = (words[i] & ~nan) | (kInfinity * 0x10001u & nan);
    }
    return max(m & 0xFFFFu, m >> 16);
  }
};
/// Compares magnitudes as integers; NaN is the largest.
struct MaxMagnitudes {
  __device__ static std::uint32_t of(std::uint32_t a, std::uint32_t b) {
    return __vmaxu2(a & 0x7FFF7FFFu, b & 0x7FFF7FFFu);
  }
};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 860
using MaxBF16 = MaxMagnitudes;  // sm_86 is the first with the instruction
using MaxFP16 = MaxMagnitudes;
#else
struct MaxBF16 {
  __device__ static std::uint32_t of(std::uint32_t a, std::uint32_t b) {
    asm("max.NaN.xorsign.abs.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
};
struct MaxFP16 {
  __device__ static std::uint32_t of(std::uint32_t a, std::uint32_t b) {
    asm("max.NaN.xorsign.abs.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
};
#endif
template <>
struct Block<DType::bf16> : Block16Bit<0x7F80u, MaxBF16> {
  __device__ float value(int i) const {
    return __uint_as_float(i % 2 ? words[i / 2] & 0xFFFF0000u : words[i / 2] << 16);
  }
  __device__ static float magnitude(std::uint32_t bits) { return __uint_as_float(bits << 16); }
};
template <>
struct Block<DType::f16> : Block16Bit<0x7C00u, MaxFP16> {
  __device__ float value(int i) const {
    const __half_raw h{static_cast<unsigned short>(words[i / 2] >> (i % 2 * 16))};
    return __half2float(__half(h));
  }
  __device__ static float magnitude(std::uint32_t bits) {
    return __half2float(__half(__half_raw{static_cast<unsigned short>(bits)}));
  }
};

template <DType kType>
constexpr int kElementBytes = kType == DType::f32 ? 4 : 2;

template <DType kType>
__device__ inline float load_element(const void* data, std::int64_t i) {
  if constexpr (kType == DType::f32) return __ldg(static_cast<const float*>(data) + i);
  const std::uint16_t bits = __ldg(static_cast<const std::uint16_t*>(data) + i);
  if constexpr (kType == DType::bf16) return BF16{bits}.to_float();
  return __half2float(__half(__half_raw{bits}));
}

/// Loads 16 elements in runs of `run`, which are `step` apart: for elements that are not
/// consecutive or not aligned to 16 bytes. It is slow and therefore not inlined.
template <DType kType>
__device__ __noinline__ void load_scattered(const char* p, int run, int step, Block<kType>* b) {
  for (int i = 0; i < 16; ++i) {
    const std::int64_t at = i / run * step + i % run;
    if constexpr (kType == DType::f32) {
      b->words[i] = __ldg(reinterpret_cast<const std::uint32_t*>(p) + at);
    } else {
      const std::uint32_t bits = __ldg(reinterpret_cast<const std::uint16_t*>(p) + at);
      b->words[i / 2] = i % 2 ? b->words[i / 2] | bits << 16 : bits;
    }
  }
}

/// Loads elements 8·half to 8·half + 7 of a block. `p` must be aligned to 16 bytes.
template <DType kType>
__device__ inline void load_half(Block<kType>& b, int half, const char* p) {
  constexpr int kWords = Block<kType>::kWords / 2;
#pragma unroll
  for (int i = 0; i < kWords; i += 4) {
    const uint4 v = __ldg(reinterpret_cast<const uint4*>(p) + i / 4);
    std::uint32_t* words = b.words + half * kWords + i;
    words[0] = v.x;
    words[1] = v.y;
    words[2] = v.z;
    words[3] = v.w;
  }
}

/// Loads 16 consecutive elements. `aligned`: `p` is aligned to 16 bytes; without kAny it must be.
template <DType kType, bool kAny = true>
__device__ inline Block<kType> load_block(const char* p, bool aligned) {
  Block<kType> b;
  if (!kAny || aligned) {
    load_half(b, 0, p);
    load_half(b, 1, p + 8 * kElementBytes<kType>);
  } else if constexpr (kAny) {
    Block<kType> copy;
    load_scattered(p, 16, 16, &copy);
    b = copy;
  }
  return b;
}

/// Reports whether every block of a row is aligned to 16 bytes.
__host__ __device__ inline bool is_aligned(const MatrixView& x) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 &&
         x.stride % (x.dtype == DType::f32 ? 4 : 8) == 0;
}

struct Loaded16 {
  float amax = 0;
  bool has_nan = false;
};

/// Unpacks the values. Returns the largest magnitude, ignoring NaN.
template <DType kType>
__device__ inline Loaded16 unpack(const Block<kType>& b, float* values) {
#pragma unroll
  for (int i = 0; i < 16; ++i) values[i] = b.value(i);
  const std::uint32_t bits = b.amax_bits();
  Loaded16 r{Block<kType>::magnitude(bits), bits > Block<kType>::kInfinity};
  if (r.has_nan) r.amax = block_amax(values, 16);
  return r;
}

/// Stores 16 values from element `index` on, rounded to the type.
__device__ inline void store_values(void* data, DType dtype, std::int64_t index, const float* v) {
  if (dtype == DType::f32) {
    float* out = static_cast<float*>(data) + index;
    if (reinterpret_cast<std::uintptr_t>(out) % 16 == 0) {
#pragma unroll
      for (int i = 0; i < 16; i += 4)
        reinterpret_cast<float4*>(out)[i / 4] = {v[i], v[i + 1], v[i + 2], v[i + 3]};
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i) out[i] = v[i];
    }
    return;
  }
  std::uint32_t words[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (dtype == DType::bf16)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(v[2 * i + 1]), "f"(v[2 * i]));
    else
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(v[2 * i + 1]), "f"(v[2 * i]));
  }
  auto* out = static_cast<std::uint16_t*>(data) + index;
  if (reinterpret_cast<std::uintptr_t>(out) % 16 == 0) {
    reinterpret_cast<uint4*>(out)[0] = {words[0], words[1], words[2], words[3]};
    reinterpret_cast<uint4*>(out)[1] = {words[4], words[5], words[6], words[7]};
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) out[i] = static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16));
  }
}

/// Division by a number known at launch, for n < kMostDivided. Source: Granlund and Montgomery,
/// 1994.
inline constexpr std::int64_t kMostDivided = std::int64_t{1} << 31;
struct Divider {
  std::uint32_t divisor = 1, multiplier = 0, shift = 0;

  Divider() = default;
  explicit Divider(std::uint32_t d) : divisor(d) {
    while ((std::uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<std::uint32_t>(
        ((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - d)) / d + 1);
  }
  __device__ std::uint32_t quotient(std::uint32_t n) const {
    return (__umulhi(n, multiplier) + n) >> shift;
  }
};

__host__ __device__ __forceinline__ std::int64_t scale_offset_of(ScaleLayout layout,
                                                                 std::int64_t row,
                                                                 std::int64_t block,
                                                                 std::int64_t rows,
                                                                 std::int64_t blocks) {
  switch (layout) {
    case ScaleLayout::tiled_128x4:
      return Tiled128x4Scales::offset(row, block, rows, blocks);
    case ScaleLayout::tiled_8x4:
      return Tiled8x4Scales::offset(row, block, rows, blocks);
    case ScaleLayout::packed_row_major:
      return PackedRowMajorScales::offset(row, block, rows, blocks);
    case ScaleLayout::packed_mn_major:
      return PackedMnMajorScales::offset(row, block, rows, blocks);
    default:
      return LinearScales::offset(row, block, rows, blocks);
  }
}

}  // namespace nvfp4::cuda
