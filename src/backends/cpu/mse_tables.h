#pragma once

#include <bit>
#include <cstdint>

/// Fixed-point tables of the mse filter. The candidates of a block are nine codes, an octave:
/// `top`, the largest E4M3 code whose scale is below amax / 3.5, and the eight below it. Tables are
/// indexed by the mantissa m (0..7) of top = (1 + m/8) 2^e0. Values are in units of 2^e0. The
/// comment of mse-inl.h has the proof.
namespace nvfp4::cpu {

inline constexpr int kFirstOffset = -8, kLastOffset = 0;
inline constexpr int kLast = kLastOffset - kFirstOffset;  ///< index of the highest candidate
/// Tops whose candidates, and the code below them, are normal.
inline constexpr int kFirstTop = 8 - (kFirstOffset - 1), kLastTop = 126;
/// The unit of |x| is 2^e0 / 2^kUnitBits: amax < 3.5 · 2 · 2^e0 stays below 2^15.
inline constexpr int kUnitBits = 12;

/// Returns the value of code top + offset, for offsets from -9 to 1.
constexpr double candidate_value(int m, int offset) {
  const int k = m + offset;
  return k < -8 ? (24 + k) / 32.0 : k < 0 ? (16 + k) / 16.0 : k < 8 ? (8 + k) / 8.0 : k / 4.0;
}

struct alignas(64) Words8 {
  std::uint32_t value[16];  // eight are used; a whole vector can be loaded
};

struct CandidateTables {
  Words8 reciprocal;  ///< 2^15 / value in both halves: y times it, >> 16, counts eighths · 2^8
  Words8 factor;      ///< value · -2^10, exact: with Σ h y and Σ h², h = 2 q, it gives the cost
  std::int32_t index;  ///< index of the candidate, here so that a load can broadcast it
};

constexpr CandidateTables candidate_tables(int offset) {
  CandidateTables t{};
  t.index = offset - kFirstOffset;
  for (int m = 0; m < 8; ++m) {
    const double value = candidate_value(m, offset);
    const double inverse = 32768 / value + 0.5;
    const auto reciprocal = static_cast<std::uint32_t>(inverse < 65535 ? inverse : 65535);
    t.reciprocal.value[m] = reciprocal | reciprocal << 16;
    t.factor.value[m] = static_cast<std::uint32_t>(static_cast<std::int32_t>(value * -1024));
  }
  return t;
}

inline constexpr CandidateTables kCandidates[kLast + 1] = {
    candidate_tables(-8), candidate_tables(-7), candidate_tables(-6),
    candidate_tables(-5), candidate_tables(-4), candidate_tables(-3),
    candidate_tables(-2), candidate_tables(-1), candidate_tables(0)};

/// Reports whether reciprocals are precise enough. A threshold t · candidate is an integer T <= 3.5
/// · 2 · 2^kUnitBits. The product of y with the rounded reciprocal has an error below one y, so
/// only y = T can fall on either side.
constexpr bool reciprocals_are_sharp() {
  for (int offset = kFirstOffset; offset <= kLastOffset; ++offset)
    for (int m = 0; m < 8; ++m) {
      const double exact = 32768 / candidate_value(m, offset);
      const auto stored = kCandidates[offset - kFirstOffset].reciprocal.value[m] & 0xFFFF;
      const double off = stored > exact ? stored - exact : exact - stored;
      const double largest = 3.5 * candidate_value(m, 1) * (1 << kUnitBits) + 1;
      if (largest * off / exact >= 1) return false;
    }
  return true;
}
static_assert(reciprocals_are_sharp());

/// Returns the FP32 bits of factor · (code top + offset), in the filter's units.
constexpr Words8 bound_table(double factor, int offset) {
  Words8 t{};
  for (int m = 0; m < 8; ++m)
    t.value[m] = std::bit_cast<std::uint32_t>(
        static_cast<float>(factor * (1 << kUnitBits) * candidate_value(m, offset)));
  return t;
}
/// The largest value that the code below the window can represent.
inline constexpr Words8 kSixTimesBelow = bound_table(6, kFirstOffset - 1);
/// Upper bound of amax for which no code above the window can win.
inline constexpr Words8 kReach = bound_table(3.5, kLastOffset + 1);

/// Returns twice the E2M1 magnitude nearest to v in [quarters, quarters + 1) / 4. A tie may go
/// either way.
constexpr int halves_of_quarters(int quarters) {
  return (quarters >= 1) + (quarters >= 3) + (quarters >= 5) + (quarters >= 7) +
         2 * (quarters >= 10) + 2 * (quarters >= 14) + 4 * (quarters >= 20);
}

struct alignas(64) Bytes64 {
  std::uint8_t value[64];
};
/// Tables by eighths and by quarters.
inline constexpr Bytes64 kHalvesOfEighths = [] {
  Bytes64 t{};
  for (int i = 0; i < 64; ++i) t.value[i] = static_cast<std::uint8_t>(halves_of_quarters(i / 2));
  return t;
}();
inline constexpr Bytes64 kHalvesOfQuarters = [] {
  Bytes64 t{};
  for (int i = 0; i < 64; ++i) t.value[i] = static_cast<std::uint8_t>(halves_of_quarters(i));
  return t;
}();

}  // namespace nvfp4::cpu
