#pragma once

#include <cstdint>
#include <cstring>
#include <random>

#include "nvfp4/quantize.h"

/// Inputs for several benchmarks.
namespace nvfp4::bench {

/// Returns values of N(0, 0.02²), like weights. A pattern is repeated, so that the setup is fast.
inline Matrix gaussian(DType dtype, std::int64_t rows, std::int64_t cols, std::uint64_t seed = 1) {
  constexpr std::int64_t kPattern = 1 << 20;
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  Matrix m(dtype, rows, cols);
  const std::int64_t n = rows * cols;
  for (std::int64_t i = 0; i < std::min(n, kPattern); ++i) {
    const float value = normal(rng);
    if (dtype == DType::f32)
      m.data<float>()[i] = value;
    else
      m.data<std::uint16_t>()[i] =
          dtype == DType::bf16 ? BF16::from_float(value).bits : FP16::from_float(value).bits;
  }
  const std::int64_t size = dtype_size(dtype);
  for (std::int64_t i = kPattern; i < n; i += kPattern)
    std::memcpy(m.data<char>() + i * size, m.data<char>(),
                static_cast<std::size_t>(std::min(kPattern, n - i) * size));
  return m;
}

}  // namespace nvfp4::bench
