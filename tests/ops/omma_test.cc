// The operands and the arithmetic of mma.sync.m16n8k64 on FP4, without a GPU.
#include "selftest/omma_arithmetic.h"
#include "selftest/omma_fragments.h"
#include "testing.h"

namespace nvfp4::cuda::omma::omma_test {

/// Returns row and column of element i of a lane by the tables of the PTX ISA; i counts through its
/// registers.
Element a_of_table(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  const bool first = (0 <= i && i < 8) || (16 <= i && i < 24);
  return {first ? group : group + 8, i < 16 ? thread * 8 + (i & 7) : thread * 8 + (i & 7) + 32};
}
Element b_of_table(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  return {group, i < 8 ? thread * 8 + (i & 7) : thread * 8 + (i & 7) + 32};
}
Element d_of_table(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  return {i < 2 ? group : group + 8, thread * 2 + (i & 1)};
}

TEST(Omma, ElementsAreWherePtxSaysEachOnce) {
  std::set<std::pair<int, int>> a, b, d;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < kARegisters * kNibbles; ++i) {
      const Element e = a_element(lane, i / kNibbles, i % kNibbles);
      EXPECT_EQ(e, a_of_table(lane, i)) << lane << " " << i;
      EXPECT_TRUE(e.line < kM && e.k < kK && a.emplace(e.line, e.k).second);
    }
    for (int i = 0; i < kBRegisters * kNibbles; ++i) {
      const Element e = b_element(lane, i / kNibbles, i % kNibbles);
      EXPECT_EQ(e, b_of_table(lane, i)) << lane << " " << i;
      EXPECT_TRUE(e.line < kN && e.k < kK && b.emplace(e.line, e.k).second);
    }
    for (int i = 0; i < kDRegisters; ++i) {
      const Element e = d_element(lane, i);
      EXPECT_EQ(e, d_of_table(lane, i)) << lane << " " << i;
      EXPECT_TRUE(e.line < kM && e.k < kN && d.emplace(e.line, e.k).second);
    }
  }
  EXPECT_EQ(a.size(), std::size_t{kM * kK});
  EXPECT_EQ(b.size(), std::size_t{kN * kK});
  EXPECT_EQ(d.size(), std::size_t{kM * kN});
}

/// PTX: with thread-id-a 0 the first pair of lanes of each quad has the scales of A, with 1 the
/// second; of a pair the first lane those of row g, the second those of g + 8. Of B one lane of
/// each quad has those of column g.
TEST(Omma, ScalesLieInTheirLanes) {
  for (int id = 0; id < 2; ++id)
    for (int row = 0; row < kM; ++row) {
      const int lane = a_scale_lane(row, id);
      EXPECT_EQ(lane / 4, row % 8);
      EXPECT_EQ(lane % 4 / 2, id);
      EXPECT_EQ(lane % 2, row / 8);
    }
  for (int id = 0; id < 4; ++id)
    for (int column = 0; column < kN; ++column) {
      EXPECT_EQ(b_scale_lane(column, id) / 4, column);
      EXPECT_EQ(b_scale_lane(column, id) % 4, id);
    }
}

constexpr double kE2M1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
double value_of(unsigned code) { return code & 8 ? -kE2M1[code & 7] : kE2M1[code & 7]; }

struct Split {
  double significand;
  int exponent;
};
Split split(double v, int least) {
  if (v == 0) return {0, -126};
  int exponent = 0;
  const double significand = 2 * std::frexp(v, &exponent);
  if (--exponent >= least) return {significand, exponent};
  return {std::ldexp(significand, exponent - least), least};
}
float of_bits(std::uint32_t bits) {
  float v;
  std::memcpy(&v, &bits, 4);
  return v;
}

/// Vectors of 64 codes with their scales.
struct Vector {
  std::uint32_t codes[8] = {}, scales = 0;
  unsigned code(int k) const { return codes[k / 8] >> 4 * (k % 8) & 15; }
  void set(int k, unsigned code) {
    codes[k / 8] = (codes[k / 8] & ~(15u << 4 * (k % 8))) | code << 4 * (k % 8);
  }
  E4M3 scale(int block) const { return {static_cast<std::uint8_t>(scales >> 8 * block & 0x7F)}; }
};

/// The same in FP64, whose every step is exact here.
std::uint32_t expected_sum(std::uint32_t sum, const Vector& a, const Vector& b) {
  std::vector<Split> terms = {split(of_bits(sum), -126)};
  for (int block = 0; block < 4; ++block) {
    double dot = 0;
    for (int k = block * 16; k < block * 16 + 16; ++k)
      dot += value_of(a.code(k)) * value_of(b.code(k));
    const Split sa = split(a.scale(block).to_float(), -6),
                sb = split(b.scale(block).to_float(), -6);
    terms.push_back({dot * sa.significand * sb.significand, sa.exponent + sb.exponent});
  }
  int largest = terms[0].exponent;
  for (const Split& t : terms) largest = std::max(largest, t.exponent);
  double all = 0;
  for (const Split& t : terms)
    all += std::trunc(std::ldexp(t.significand, 35 + t.exponent - largest));
  const Split s = split(std::ldexp(all, largest - 35), -126);
  const double rounded = std::ldexp(std::trunc(std::ldexp(s.significand, 23)), s.exponent - 23);
  const auto result = static_cast<float>(rounded);
  std::uint32_t bits;
  std::memcpy(&bits, &result, 4);
  return bits;
}

std::uint32_t sum_of(std::uint32_t sum, const Vector& a, const Vector& b) {
  return add_product(sum, a.codes, a.scales, b.codes, b.scales);
}

/// `kind`: how far apart exponents are.
Vector random_vector(std::mt19937& random, int kind) {
  Vector v;
  for (std::uint32_t& word : v.codes) word = kind == 3 ? 0x77777777u : random();
  for (int block = 0; block < 4; ++block) {
    const std::uint32_t scale = kind == 0   ? 0x38 + random() % 8
                                : kind == 1 ? random() % 0x7F
                                : kind == 2 ? (random() % 2 ? random() % 8 : 0x78 + random() % 7)
                                            : 0x7E;
    v.scales |= (scale | (random() % 4 == 0 ? 0x80 : 0)) << 8 * block;  // the sign is ignored
  }
  return v;
}

TEST(Omma, SumsAreThoseOfAnotherImplementation) {
  std::mt19937 random(1);
  int inexact = 0;
  for (int i = 0; i < 200000; ++i) {
    const int kind = i % 4;
    const Vector a = random_vector(random, kind), b = random_vector(random, i / 4 % 4);
    std::uint32_t sum = random();
    if (i % 3 == 0) sum = i % 2 ? 0 : sum & 0x807FFFFF;                      // 0, subnormal
    if (i % 3 == 1) sum = (sum & 0x807FFFFF) | (100 + random() % 50) << 23;  // of their size
    if ((sum & 0x7F800000) == 0x7F800000) sum &= 0xBFFFFFFF;
    const std::uint32_t got = sum_of(sum, a, b), expected = expected_sum(sum, a, b);
    // Both zeros are zero: which one it is nobody has said.
    ASSERT_TRUE(got == expected || ((got | expected) << 1) == 0)
        << std::hex << sum << ": " << got << ", not " << expected;
    double exact = of_bits(sum);
    for (int k = 0; k < 64; ++k)
      exact += value_of(a.code(k)) * value_of(b.code(k)) * a.scale(k / 16).to_float() *
               b.scale(k / 16).to_float();
    inexact += of_bits(got) != static_cast<float>(exact) ? 1 : 0;
  }
  EXPECT_GT(inexact, 1000) << "truncation was not tried";
}

TEST(Omma, TruncatesAt35BitsBehindTheLargestExponent) {
  Vector a, b;
  a.set(0, 2), b.set(0, 2);    // 1 · 1
  a.scales = b.scales = 0x38;  // 1, the others 0
  EXPECT_EQ(of_bits(sum_of(0, a, b)), 1.0f);
  // 2^24 + 1: the last bit goes, towards zero; so does that of -2^24 - 1.
  EXPECT_EQ(of_bits(sum_of(0x4B800000, a, b)), 16777216.0f);
  EXPECT_EQ(of_bits(sum_of(0x4B7FFFFF, a, b)), 16777216.0f);
  a.set(0, 10);
  EXPECT_EQ(of_bits(sum_of(0xCB800000, a, b)), -16777216.0f);
  // 2^35 - 1 needs 35 bits, 2^36 - 1 one more: the 1 is gone.
  EXPECT_EQ(sum_of(0x51000000, a, b), 0x50FFFFFFu);
  EXPECT_EQ(sum_of(0x51800000, a, b), 0x51800000u);
  // The exponent of a dot that is 0 counts too: the sum before loses its bits to it.
  Vector large;
  large.scales = 0x7E;
  EXPECT_EQ(sum_of(0x2F800001, large, large), expected_sum(0x2F800001, large, large));
  EXPECT_NE(sum_of(0x2F800001, large, large), 0x2F800001u);
}

TEST(Omma, NanAndInfinity) {
  std::mt19937 random(2);
  for (int block = 0; block < 4; ++block)
    for (const std::uint32_t nan : {0x7Fu, 0xFFu}) {
      Vector a = random_vector(random, 0);
      const Vector b = random_vector(random, 0);
      a.scales = (a.scales & ~(0xFFu << 8 * block)) | nan << 8 * block;
      EXPECT_EQ(sum_of(0, a, b), 0x7FFFFFFFu);
      EXPECT_EQ(sum_of(0, b, a), 0x7FFFFFFFu);
    }
  const Vector a = random_vector(random, 0);
  EXPECT_EQ(sum_of(0x7FC00000, a, a), 0x7FFFFFFFu);
  EXPECT_EQ(sum_of(0x7F800000, a, a), 0x7F800000u);
  EXPECT_EQ(sum_of(0xFF800000, a, a), 0xFF800000u);
  const Vector most = random_vector(random, 3);
  EXPECT_EQ(sum_of(0x7F7FFFFF, most, most), expected_sum(0x7F7FFFFF, most, most));
}

/// The instruction on registers of 32 lanes.
struct Registers {
  std::uint32_t a[32][kARegisters] = {}, b[32][kBRegisters] = {}, a_scales[32] = {},
                b_scales[32] = {};
  float d[32][kDRegisters] = {};
};
void multiply(Registers& r) {
  std::vector<Vector> a(kM), b(kN);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 32; ++i) {
      const Element e = a_of_table(lane, i);
      a[static_cast<std::size_t>(e.line)].set(e.k, r.a[lane][i / 8] >> 4 * (i % 8) & 15);
    }
    for (int i = 0; i < 16; ++i) {
      const Element e = b_of_table(lane, i);
      b[static_cast<std::size_t>(e.line)].set(e.k, r.b[lane][i / 8] >> 4 * (i % 8) & 15);
    }
  }
  for (int row = 0; row < kM; ++row)
    a[static_cast<std::size_t>(row)].scales = r.a_scales[a_scale_lane(row, 0)];
  for (int column = 0; column < kN; ++column)
    b[static_cast<std::size_t>(column)].scales = r.b_scales[b_scale_lane(column, 0)];
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < kDRegisters; ++i) {
      const Element e = d_of_table(lane, i);
      std::uint32_t bits;
      std::memcpy(&bits, &r.d[lane][i], 4);
      r.d[lane][i] = of_bits(
          sum_of(bits, a[static_cast<std::size_t>(e.line)], b[static_cast<std::size_t>(e.k)]));
    }
}

/// One element of A that is 1, with B and both scales all 1, reaches the sums of its row and no
/// other; so do one of B and one scale.
TEST(Omma, OneElementReachesItsSums) {
  const auto ones = [] {
    Registers r;
    for (int lane = 0; lane < 32; ++lane) {
      for (std::uint32_t& word : r.a[lane]) word = 0x22222222;
      for (std::uint32_t& word : r.b[lane]) word = 0x22222222;
      r.a_scales[lane] = r.b_scales[lane] = 0x38383838;
    }
    return r;
  };
  const auto expect = [](Registers& r, auto value) {
    multiply(r);
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < kDRegisters; ++i) {
        const Element e = d_element(lane, i);
        ASSERT_EQ(r.d[lane][i], value(e.line, e.k)) << e.line << ", " << e.k;
      }
  };
  constexpr std::uint32_t kOneToTwo = 0x6;  // 1 is code 2, 2 is code 4
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 32; ++i) {
      Registers r = ones();
      const Element a = a_element(lane, i / 8, i % 8);
      r.a[lane][i / 8] ^= kOneToTwo << 4 * (i % 8);
      expect(r, [&](int row, int) { return row == a.line ? 65.0f : 64.0f; });
      if (i >= 16) continue;
      r = ones();
      const Element b = b_element(lane, i / 8, i % 8);
      r.b[lane][i / 8] ^= kOneToTwo << 4 * (i % 8);
      expect(r, [&](int, int column) { return column == b.line ? 65.0f : 64.0f; });
    }
  for (int block = 0; block < kBlocks; ++block) {
    for (int of = 0; of < kM; ++of) {
      Registers r = ones();
      r.a_scales[a_scale_lane(of, 0)] ^= (0x38u ^ 0x40u) << 8 * block;
      expect(r, [&](int row, int) { return row == of ? 80.0f : 64.0f; });
    }
    for (int of = 0; of < kN; ++of) {
      Registers r = ones();
      r.b_scales[b_scale_lane(of, 0)] ^= (0x38u ^ 0x40u) << 8 * block;
      expect(r, [&](int, int column) { return column == of ? 80.0f : 64.0f; });
    }
  }
}

}  // namespace nvfp4::cuda::omma::omma_test
