#pragma once

#include <cmath>
#include <cstdint>

#include "nvfp4/matrix.h"

/// Inputs that are the same on every machine.
namespace nvfp4::selftest {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  /// Returns a number in [0, n) for a small n.
  int below(int n) { return static_cast<int>((bits() >> 8) * static_cast<std::uint64_t>(n) >> 24); }
  /// Returns a number in (-1, 1); small ones are more frequent.
  float value() {
    const auto a = static_cast<float>(bits() >> 8), b = static_cast<float>(bits() >> 8);
    return (a - b) * 0x1p-24f;
  }

 private:
  std::uint64_t state_;
};

inline void store(const MatrixSpan& to, std::int64_t row, std::int64_t col, float v) {
  const std::int64_t i = row * to.stride + col;
  if (to.dtype == DType::f32)
    static_cast<float*>(to.data)[i] = v;
  else
    static_cast<std::uint16_t*>(to.data)[i] =
        to.dtype == DType::bf16 ? BF16::from_float(v).bits : FP16::from_float(v).bits;
}

/// Returns rows of different magnitude; some are zero.
inline Matrix random_matrix(DType type, std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Matrix m(type, rows, cols);
  Random random(seed);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float size = r % 29 == 28 ? 0.0f : std::ldexp(1.0f, static_cast<int>(r % 7) - 3);
    for (std::int64_t c = 0; c < cols; ++c) store(m.span(), r, c, random.value() * size);
  }
  return m;
}

/// Returns integers in [-most, most].
inline Matrix integers(DType type, std::int64_t rows, std::int64_t cols, int most,
                       std::uint64_t seed) {
  Matrix m(type, rows, cols);
  Random random(seed);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      store(m.span(), r, c, static_cast<float>(random.below(2 * most + 1) - most));
  return m;
}

/// Returns every value of a 16-bit type, also NaN and infinity.
inline Matrix every_value(DType type) {
  Matrix m(type, 256, 256);
  for (std::int64_t i = 0; i < 65536; ++i)
    m.data<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
  return m;
}

/// Returns every value of a 16-bit type as the largest value of a block of its own.
inline Matrix every_largest(DType type) {
  Matrix m(type, 4096, 256);
  for (std::int64_t block = 0; block < 65536; ++block)
    for (std::int64_t i = 0; i < kBlock; ++i)
      m.data<std::uint16_t>()[block * kBlock + i] = static_cast<std::uint16_t>(i < 15 ? 0 : block);
  return m;
}

/// Returns every value of a 16-bit type that is at most 6, in blocks that contain a 6.
inline Matrix every_element(DType type) {
  Matrix m(type, 274, 256);  // 65536 / 15 blocks and padding
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < m.rows() * 256; ++i) {
    float v = 6.0f;
    if (i % kBlock != 0) {
      const auto bits = static_cast<std::uint16_t>(next++);
      v = type == DType::bf16 ? BF16{bits}.to_float() : FP16{bits}.to_float();
      if (!(std::abs(v) <= 6.0f)) v = 0.0f;
    }
    store(m.span(), i / 256, i % 256, v);
  }
  return m;
}

}  // namespace nvfp4::selftest
