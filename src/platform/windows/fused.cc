#include <bit>
#include <cmath>
#include <cstdint>

// Replacements for mingw's fma() and fmaf(), which round more than once. Backends have the same
// bits only if these are exact.

namespace {

/// Returns a + b in Wide, rounded to odd: an inexact sum has a last bit of 1. A second rounding, to
/// at least two digits less, then knows the correct side of a tie.
template <class Bits, class Wide>
Wide sum_to_odd(Wide a, Wide b) {
  const Wide sum = a + b;
  const Wide of_b = sum - a;
  const Wide lost = (a - (sum - of_b)) + (b - of_b);
  const auto bits = std::bit_cast<Bits>(sum);
  // A NaN, from a sum that is not a number, is neither.
  if (!(lost > 0 || lost < 0) || (bits & 1) != 0) return sum;
  return std::bit_cast<Wide>((lost > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

}  // namespace

extern "C" float fmaf(float a, float b, float c) {
  return static_cast<float>(sum_to_odd<std::uint64_t>(
      static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c)));
}

extern "C" double fma(double a, double b, double c) {
  __extension__ using Wide = __float128;
  __extension__ using Bits = unsigned __int128;
  return static_cast<double>(
      sum_to_odd<Bits>(static_cast<Wide>(a) * static_cast<Wide>(b), static_cast<Wide>(c)));
}
