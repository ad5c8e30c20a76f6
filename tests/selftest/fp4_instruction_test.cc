// Tests of what the selftest reports about an instruction, with instructions that add in other
// ways.
#include "selftest/fp4_instruction.h"

#include "selftest/omma_arithmetic.h"
#include "selftest/omma_fragments.h"
#include "testing.h"

namespace nvfp4::selftest::fp4_instruction_test {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(Fp4Instruction, ThatIsAsDocumentedIsFoundSo) {
  const std::vector<std::string> all = observed_fp4(multiply_fp4_on_host);
  ASSERT_EQ(all.size(), 10u);
  for (int i = 0; i < 6; ++i)
    EXPECT_THAT(all[static_cast<std::size_t>(i)], EndsWith(": as PTX says"));
  EXPECT_THAT(all[6], HasSubstr("in a sum of four blocks: 35 (MMA-Sim: 35)"));
  EXPECT_THAT(all[7], EndsWith("is cut to zero, as MMA-Sim says"));
  EXPECT_THAT(all[8], EndsWith("rounded towards zero, as MMA-Sim says"));
  EXPECT_THAT(all[9], HasSubstr("the arithmetic of MMA-Sim holds: 32768 of 32768"));
}

/// Scales always of thread ids 0.
TEST(Fp4Instruction, ThatIgnoresThreadIdsIsFoundOut) {
  const std::vector<std::string> all =
      observed_fp4([](std::span<Fp4Case> cases, int, int) { multiply_fp4_on_host(cases, 0, 0); });
  EXPECT_THAT(all[0], EndsWith("as PTX says"));
  EXPECT_EQ(all[1], "thread id 1 of the scales of A: row 0 takes that of lane 0, PTX says 2");
  EXPECT_THAT(all[2], EndsWith("as PTX says"));
  EXPECT_EQ(all[5], "thread id 3 of the scales of B: column 0 takes that of lane 0, PTX says 3");
  EXPECT_THAT(all[9], HasSubstr("holds"));
}

TEST(Fp4Instruction, ScalesOfNoLaneAreFound) {
  const std::vector<std::string> all =
      observed_fp4([](std::span<Fp4Case> cases, int a_thread, int b_thread) {
        for (Fp4Case& c : cases)
          for (std::uint32_t& scales : c.a_scales) scales = 0x7E7E7E7E;
        multiply_fp4_on_host(cases, a_thread, b_thread);
      });
  EXPECT_EQ(all[0], "thread id 0 of the scales of A: row 0 is multiplied by no lane's scale");
}

/// Sums in FP64, with `bits` behind the point of the largest block's exponent, each term by `cut`,
/// the sum by `round`.
template <class Cut, class Round>
void add_up(std::span<Fp4Case> cases, int bits, const Cut& cut, const Round& round) {
  namespace omma = cuda::omma;
  for (Fp4Case& c : cases)
    for (int lane = 0; lane < 32; ++lane)
      for (int r = 0; r < 4; ++r) {
        const omma::Element at = omma::d_element(lane, r);
        double terms[5] = {c.d[lane][r]};
        int largest = terms[0] == 0 ? -126 : std::ilogb(terms[0]);
        for (int block = 0; block < 4; ++block) {
          const auto of = [&](const std::uint32_t(&scales)[32], int from) {
            return omma::scale_parts(static_cast<std::uint8_t>(scales[from] >> 8 * block));
          };
          const omma::Scaled sa = of(c.a_scales, omma::a_scale_lane(at.line, 0)),
                             sb = of(c.b_scales, omma::b_scale_lane(at.k, 0));
          int dot = 0;
          for (int other = 0; other < 4; ++other)
            for (int nibble = 0; nibble < 8; ++nibble) {
              const int k = other * 8 + nibble;
              for (const int half : {0, 1}) {
                if ((k + 32 * half) / 16 != block) continue;
                dot +=
                    omma::twice_e2m1(
                        c.a[at.line % 8 * 4 + other][at.line / 8 + 2 * half] >> 4 * nibble & 15) *
                    omma::twice_e2m1(c.b[at.k * 4 + other][half] >> 4 * nibble & 15);
              }
            }
          terms[block + 1] = std::ldexp(static_cast<double>(dot * sa.significand * sb.significand),
                                        sa.exponent + sb.exponent - 8);
          largest = std::max(largest, sa.exponent + sb.exponent);
        }
        double sum = 0;
        for (const double t : terms)
          sum += std::ldexp(cut(std::ldexp(t, bits - largest)), largest - bits);
        c.d[lane][r] = round(sum);
      }
}
float to_zero(double v) {
  const auto f = static_cast<float>(v);
  return std::abs(static_cast<double>(f)) > std::abs(v) ? std::nextafter(f, 0.0f) : f;
}

TEST(Fp4Instruction, WhoseSumsHaveOtherBitsIsFoundOut) {
  const auto zero = [](double v) { return std::trunc(v); };
  const auto with = [&](int bits) {
    return observed_fp4(
        [&](std::span<Fp4Case> cases, int, int) { add_up(cases, bits, zero, to_zero); });
  };
  // The same arithmetic in other words.
  EXPECT_THAT(with(35)[6], HasSubstr("four blocks: 35 "));
  EXPECT_THAT(with(35)[9], HasSubstr("MMA-Sim holds"));
  EXPECT_THAT(with(25)[6], HasSubstr("four blocks: 25 "));
  EXPECT_THAT(with(25)[9], AllOf(HasSubstr("does NOT hold"), HasSubstr(", must be ")));
  EXPECT_THAT(with(45)[6], HasSubstr("four blocks: at least 36 "));
}

TEST(Fp4Instruction, ThatRoundsInAnotherWayIsFoundOut) {
  const auto nearest = [](double v) { return static_cast<float>(v); };
  const auto down = [](double v) {
    const auto f = static_cast<float>(v);
    return static_cast<double>(f) > v ? std::nextafter(f, -INFINITY) : f;
  };
  const auto zero = [](double v) { return std::trunc(v); };
  const auto floor = [](double v) { return std::floor(v); };
  EXPECT_THAT(observed_fp4([&](auto cases, int, int) { add_up(cases, 35, zero, nearest); })[8],
              EndsWith("rounded to the nearest"));
  EXPECT_THAT(observed_fp4([&](auto cases, int, int) { add_up(cases, 35, zero, down); })[8],
              EndsWith("rounded down"));
  const auto all = observed_fp4([&](auto cases, int, int) { add_up(cases, 35, floor, to_zero); });
  EXPECT_THAT(all[7], EndsWith("is cut down, to a unit"));
  EXPECT_THAT(all[9], HasSubstr("does NOT hold"));
}

/// Their results are the same whatever the bits of a sum and its rounding.
TEST(Fp4Instruction, ExactCasesAreExactForEveryArithmetic) {
  std::vector<Fp4Case> a = exact_fp4_cases(20), b = a, c = a;
  multiply_fp4_on_host(a, 0, 0);
  add_up(
      b, 25, [](double v) { return std::floor(v); },
      [](double v) { return static_cast<float>(v); });
  multiply_fp4_on_host(c, 1, 0);
  int others = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(fp4_difference(a[i], b[i]), "");
    others += fp4_difference(a[i], c[i]).empty() ? 0 : 1;
  }
  EXPECT_EQ(others, 20);
}

}  // namespace nvfp4::selftest::fp4_instruction_test
