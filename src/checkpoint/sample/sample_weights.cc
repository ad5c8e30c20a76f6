#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "checkpoint/sample/sample_models.h"
#include "nvfp4/format.h"

namespace nvfp4::checkpoint {
namespace {

constexpr int kTableBits = 12;
constexpr int kTable = 1 << kTableBits;
constexpr double kRowSpread = 0.25, kColumnSpread = 0.15;  // standard deviations of the logarithm
constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;

/// The finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators").
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// Returns the random bits of element pair `i` of the stream `key`: SplitMix64 with random access.
constexpr std::uint64_t random_bits(std::uint64_t key, std::uint64_t i) {
  return mix(key + (i + 1) * kGolden);
}

std::uint64_t stream_key(std::uint64_t seed, std::string_view name, std::uint64_t stream) {
  std::uint64_t h = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return mix(mix(seed + kGolden) ^ mix(h + stream * kGolden));
}

/// Returns P(T > t) for Student's t with five degrees of freedom.
double upper_tail(double t) {
  const double u = 1 + t * t / 5;
  const double area = t / std::sqrt(5.0) / u * (1 + 2 / (3 * u)) + std::atan(t / std::sqrt(5.0));
  return 0.5 - area / std::numbers::pi;
}

double inverse_upper_tail(double p) {
  double low = 0, high = 64;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (upper_tail(middle) > p ? low : high) = middle;
  }
  return low;
}

/// Returns magnitudes at equal steps of probability, divided by the standard deviation √(5/3).
const std::array<float, kTable + 1>& quantiles() {
  static const std::array<float, kTable + 1> table = [] {
    std::array<float, kTable + 1> t{};
    for (int i = 0; i <= kTable; ++i) {
      // The end of the last cell is finite: two elements in a million are beyond it.
      const double tail = std::max(1.0 - static_cast<double>(i) / kTable, 0x1p-19);
      t[static_cast<std::size_t>(i)] =
          static_cast<float>(inverse_upper_tail(tail / 2) / std::sqrt(5.0 / 3.0));
    }
    return t;
  }();
  return table;
}

/// Returns a sample of unit variance. 32 random bits give the sign, the cell and the place in it.
inline float student_t(const float* table, std::uint32_t bits) {
  const std::uint32_t cell = bits >> 19 & (kTable - 1);
  const float place = static_cast<float>(bits & 0x7FFFFu) * 0x1p-19f;
  const float magnitude = table[cell] + (table[cell + 1] - table[cell]) * place;
  return bits_float(float_bits(magnitude) | (bits & 0x80000000u));
}

/// Returns an approximately standard normal sample: the sum of the four 16-bit parts of a random
/// word.
double bell(std::uint64_t bits) {
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<double>(bits >> (16 * i) & 0xFFFF) / 65536 - 0.5;
  return sum * std::sqrt(3.0);
}

}  // namespace

SampleWeights::SampleWeights(std::uint64_t seed, std::string_view tensor, std::int64_t cols,
                             double sigma)
    : key_(stream_key(seed, tensor, 0)),
      cols_(cols),
      sigma_(sigma),
      column_factors_(static_cast<std::size_t>(cols)) {
  const std::uint64_t key = stream_key(seed, tensor, 1);
  for (std::size_t c = 0; c < column_factors_.size(); ++c)
    column_factors_[c] = static_cast<float>(std::exp(kColumnSpread * bell(random_bits(key, c))));
}

void SampleWeights::fill(std::int64_t first_row, std::span<std::uint16_t> out) const {
  const float* table = quantiles().data();
  const auto cols = static_cast<std::size_t>(cols_);
  const std::uint64_t row_key = mix(key_ + 2);
  const std::size_t pairs = (cols + 1) / 2;
  for (std::size_t r = 0; r * cols < out.size(); ++r) {
    const std::uint64_t row = static_cast<std::uint64_t>(first_row) + r;
    const auto factor =
        static_cast<float>(sigma_ * std::exp(kRowSpread * bell(random_bits(row_key, row))));
    std::uint16_t* line = out.data() + r * cols;
    for (std::size_t p = 0; p < pairs; ++p) {
      const std::uint64_t bits = random_bits(key_, row * pairs + p);
      const std::size_t c = 2 * p;
      const float even = student_t(table, static_cast<std::uint32_t>(bits));
      line[c] = BF16::from_float(even * factor * column_factors_[c]).bits;
      if (c + 1 == cols) break;
      const float odd = student_t(table, static_cast<std::uint32_t>(bits >> 32));
      line[c + 1] = BF16::from_float(odd * factor * column_factors_[c + 1]).bits;
    }
  }
}

std::vector<float> sample_vector(std::uint64_t seed, std::string_view tensor, std::int64_t size,
                                 double mean, double spread) {
  const std::uint64_t key = stream_key(seed, tensor, 2);
  std::vector<float> out(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto bits = static_cast<std::uint32_t>(random_bits(key, i));
    out[i] = static_cast<float>(mean + spread * student_t(quantiles().data(), bits));
  }
  return out;
}

}  // namespace nvfp4::checkpoint
