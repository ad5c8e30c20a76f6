#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "nvfp4/quantize.h"
#include "nvfp4/runtime.h"

/// Matrices that tests share: seeded, and nasty on request.
namespace nvfp4::test {

inline void set(MatrixSpan m, std::int64_t r, std::int64_t c, float value) {
  const std::int64_t i = r * m.stride + c;
  if (m.dtype == DType::f32) {
    static_cast<float*>(m.data)[i] = value;
    return;
  }
  const std::uint16_t half =
      m.dtype == DType::bf16 ? BF16::from_float(value).bits : FP16::from_float(value).bits;
  // Conversion drops the sign of NaN.
  static_cast<std::uint16_t*>(m.data)[i] =
      static_cast<std::uint16_t>(half | (std::signbit(value) ? 0x8000 : 0));
}

enum class Fill {
  gaussian,
  laplace,
  student,
  zero,
  tiny,
  huge,
  ties,
  sparse,
  subnormal_scales,
  saturated,
  special
};
inline constexpr Fill kFills[] = {Fill::gaussian,  Fill::laplace, Fill::student,
                                  Fill::zero,      Fill::tiny,    Fill::huge,
                                  Fill::ties,      Fill::sparse,  Fill::subnormal_scales,
                                  Fill::saturated, Fill::special};

inline float draw(std::mt19937_64& rng, Fill fill, std::int64_t i) {
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0.001f, 1.0f);
  switch (fill) {
    case Fill::gaussian:
      return normal(rng);
    case Fill::laplace:
      return std::log(uniform(rng)) * (rng() % 2 ? 1.0f : -1.0f);
    case Fill::student:
      return std::student_t_distribution<float>(3.0f)(rng);
    case Fill::zero:
      return rng() % 2 ? 0.0f : -0.0f;
    case Fill::tiny:
      return 1e-9f * normal(rng);
    case Fill::huge:
      return 1e37f * normal(rng);
    case Fill::ties:  // multiples of 1/4 and of 1/32: exact ties under power-of-two scales
      return static_cast<float>(static_cast<int>(rng() % 49) - 24) *
             (i / 16 % 2 ? 0.25f : 0.03125f);
    case Fill::sparse:
      return rng() % 13 == 0 ? normal(rng) : 0.0f;
    case Fill::subnormal_scales:  // blocks from 1 down to 2^-30 of the largest
      return std::ldexp(normal(rng), -static_cast<int>(i / 16 % 31));
    case Fill::saturated:  // for a given global scale of 1
      return 3000.0f * normal(rng);
    case Fill::special:
      switch (rng() % 97) {
        case 0:
          return NAN;
        case 1:
          return -NAN;
        case 2:
          return INFINITY;
        case 3:
          return -INFINITY;
        default:
          return normal(rng);
      }
  }
  return 0;
}

inline Matrix make(Fill fill, std::int64_t rows, std::int64_t cols, std::uint64_t seed,
                   DType dtype = DType::f32) {
  std::mt19937_64 rng(seed * 7919 + static_cast<std::uint64_t>(fill));
  Matrix m(dtype, rows, cols);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) set(m.span(), r, c, draw(rng, fill, r * cols + c));
  return m;
}

/// Names of the backends that can run here, the reference last.
inline std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const BackendInfo& b : backends())
    if (b.available) names.push_back(b.name);
  return names;
}

/// Returns a name for a test parameter: letters and digits only.
inline std::string identifier(std::string name) {
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

}  // namespace nvfp4::test
