#include <bit>
#include <cmath>
#include <cstdint>

// mingw's fma() and fmaf() round more than once, and backends have the same bits only by ones that
// are exact.

namespace {

/// The sum of what is exact in Wide, rounded to odd: a sum that has lost something ends in a 1,
/// which tells what rounds it again, to two digits less at least, on which side of a tie it is.
template <class Bits, class Wide>
Wide sum_to_odd(Wide a, Wide b) {
  const Wide sum = a + b;
  const Wide of_b = sum - a;
  const Wide lost = (a - (sum - of_b)) + (b - of_b);
  const auto bits = std::bit_cast<Bits>(sum);
  // A NaN, where the sum is no number, is neither.
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
