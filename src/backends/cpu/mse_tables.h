#pragma once

#include <bit>
#include <cstdint>

/// Fixed-point tables of the mse filter, indexed by the mantissa m (0..7) of the base scale
/// (1 + m/8) 2^e0 (8: see kShiftedEntry). Candidates are the codes base + offset; values are in
/// units of 2^e0. docs/numerics.md, "The integer filter".
namespace nvfp4::cpu {

inline constexpr int kFirstOffset = -3, kLastOffset = 6;
/// Bases whose candidates are all normal and at most 448, whichever window they take.
inline constexpr int kFirstBase = 16, kLastBase = 126 - kLastOffset - 1;
/// With m = 1 and amax near the top of its cell the window moves up by one: entry 8 of each table.
inline constexpr int kShiftedEntry = 8;

struct alignas(64) CandidateTables {
  std::uint32_t reciprocal[16];  ///< steps · 2^13 / value, in both halves
  std::uint32_t candidate[16];   ///< value · 2^14, exact, in both halves
};

/// Value of code base + offset for a table's entry.
constexpr double candidate_value(int entry, int offset) {
  const int k = entry == kShiftedEntry ? 1 + offset + 1 : entry + offset;
  if (k < 0) return (16 + k) / 16.0;
  if (k < 8) return (8 + k) / 8.0;
  return k / 4.0;
}

constexpr CandidateTables candidate_tables(int offset) {
  CandidateTables t{};
  const int steps = offset > 0 ? 8 : 4;
  for (int m = 0; m <= kShiftedEntry; ++m) {
    const double value = candidate_value(m, offset);
    const auto reciprocal = static_cast<std::uint32_t>(steps * 8192 / value + 0.5);
    const auto candidate = static_cast<std::uint32_t>(value * 16384);
    t.reciprocal[m] = reciprocal | reciprocal << 16;
    t.candidate[m] = candidate | candidate << 16;
  }
  return t;
}

inline constexpr CandidateTables kCandidates[kLastOffset - kFirstOffset + 1] = {
    candidate_tables(-3), candidate_tables(-2), candidate_tables(-1), candidate_tables(0),
    candidate_tables(1),  candidate_tables(2),  candidate_tables(3),  candidate_tables(4),
    candidate_tables(5),  candidate_tables(6)};

struct alignas(64) Words16 {
  std::uint32_t value[16];
};
/// FP32 bits of 6 · (the code below the first candidate), in units of 2^e0 / 2048.
inline constexpr Words16 kSixTimesBelow = [] {
  Words16 t{};
  for (int m = 0; m <= kShiftedEntry; ++m)
    t.value[m] = std::bit_cast<std::uint32_t>(
        static_cast<float>(6 * 2048 * candidate_value(m, kFirstOffset - 1)));
  return t;
}();
/// FP32 bits of 3.5 · (the code above the last candidate): up to there no higher code can win.
inline constexpr Words16 kReach = [] {
  Words16 t{};
  for (int m = 0; m <= kShiftedEntry; ++m)
    t.value[m] = std::bit_cast<std::uint32_t>(
        static_cast<float>(3.5 * 2048 * candidate_value(m, kLastOffset + 1)));
  return t;
}();

/// Twice the E2M1 magnitude that floor(4 v) / 4 <= v rounds to; a tie may go either way.
constexpr int halves_of_quarters(int quarters) {
  return (quarters >= 1) + (quarters >= 3) + (quarters >= 5) + (quarters >= 7) +
         2 * (quarters >= 10) + 2 * (quarters >= 14) + 4 * (quarters >= 20);
}

struct alignas(64) Bytes64 {
  std::uint8_t value[64];
};
/// 16 · halves, so that as the high byte of 16 bits it is magnitude · 2^13.
constexpr Bytes64 magnitude_table(int steps) {
  Bytes64 t{};
  for (int i = 0; i < 64; ++i)
    t.value[i] = static_cast<std::uint8_t>(16 * halves_of_quarters(i * 4 / steps));
  return t;
}
inline constexpr Bytes64 kMagnitudeOfQuarters = magnitude_table(4);
inline constexpr Bytes64 kMagnitudeOfEighths = magnitude_table(8);
/// Halves of the first 16 quarters, for byte shuffles of 16 entries; 4 more from 5 upwards.
inline constexpr Bytes64 kHalvesOfQuarters = [] {
  Bytes64 t{};
  for (int i = 0; i < 16; ++i) t.value[i] = static_cast<std::uint8_t>(halves_of_quarters(i));
  return t;
}();

}  // namespace nvfp4::cpu
