#pragma once

#include "gemm_cases.h"
#include "nvfp4/layers.h"
#include "testing.h"

namespace nvfp4::test {

/// The same values, the other way round.
inline Matrix transposed(const MatrixView& m) {
  Matrix t(m.dtype, m.cols, m.rows);
  for (std::int64_t r = 0; r < m.rows; ++r)
    for (std::int64_t c = 0; c < m.cols; ++c) set(t.span(), c, r, m.at(r, c));
  return t;
}

/// NVFP4 weights whose global scales differ by orders of magnitude from row to row.
inline QuantizedMatrix uneven_weights(std::int64_t n, std::int64_t k, std::uint64_t seed) {
  QuantizedMatrix q = weights(n, k, seed, GlobalScope::vector);
  for (std::int64_t i = 0; i < n; ++i)
    q.global_scale()[i] = std::ldexp(1.0f + 0.01f * static_cast<float>(i % 50), i % 23 - 18);
  return q;
}

/// Runs f with one thread and with two; all results are those of one.
template <class F>
void expect_independent_of_threads(F&& f) {
  set_threads(1);
  const Matrix one = f();
  set_threads(2);
  const Matrix two = f();
  set_threads(0);
  EXPECT_TRUE(same_bits(one, two));
}

/// The message of the error E that f throws; "" with a failure if it throws none.
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another error: " << e.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace nvfp4::test
