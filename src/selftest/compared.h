#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "nvfp4/matrix.h"
#include "nvfp4/quantize.h"

/// Comparisons of results, byte by byte.
namespace nvfp4::selftest {

inline constexpr Quantizer kQuantizers[] = {Quantizer::max, Quantizer::four_over_six,
                                            Quantizer::mse};

/// Returns the position of the first difference of two arrays as text, or "".
inline std::string difference(std::string_view of, const void* got, const void* want,
                              std::int64_t bytes) {
  const auto *a = static_cast<const std::uint8_t*>(got),
             *b = static_cast<const std::uint8_t*>(want);
  const auto at = std::mismatch(a, a + bytes, b).first - a;
  if (at == bytes) return {};
  return fmt::format("{}[{}] = 0x{:02x}, must be 0x{:02x}", of, at, a[at], b[at]);
}

/// Returns the first difference of two matrices of one shape as text, or "".
inline std::string differences(const QuantizedMatrix& got, const QuantizedMatrix& want) {
  const QuantizedShape& s = want.shape();
  std::string text = difference("codes", got.codes(), want.codes(), s.code_bytes());
  if (text.empty()) text = difference("scales", got.scales(), want.scales(), s.scale_bytes());
  if (text.empty())
    text = difference("bytes of global_scale", got.global_scale(), want.global_scale(),
                      s.global_count() * 4);
  return text;
}

/// A checksum (FNV-1a) of bytes that are the same on every machine.
class Checksum {
 public:
  void add(const void* data, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; ++i)
      sum_ = (sum_ ^ static_cast<const std::uint8_t*>(data)[i]) * 0x100000001b3u;
  }
  void add(const QuantizedMatrix& q) {
    add(q.codes(), q.shape().code_bytes());
    add(q.scales(), q.shape().scale_bytes());
    add(q.global_scale(), q.shape().global_count() * 4);
  }
  std::uint64_t value() const { return sum_; }

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325u;
};

inline std::string wrong_sum(const Checksum& got, std::uint64_t want) {
  if (got.value() == want) return {};
  return fmt::format("the bytes have the checksum 0x{:016x}, must have 0x{:016x}", got.value(),
                     want);
}

}  // namespace nvfp4::selftest
