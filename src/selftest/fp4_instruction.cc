#include "selftest/fp4_instruction.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "selftest/inputs.h"
#include "selftest/omma_arithmetic.h"
#include "selftest/omma_fragments.h"
#include "selftest/run.h"

namespace nvfp4::selftest {
namespace {

namespace omma = cuda::omma;

constexpr std::uint32_t kOnes = 0x22222222;         // eight codes of 1
constexpr std::uint32_t kScalesOfOne = 0x38383838;  // four scales of 1

Fp4Case constant(std::uint32_t a, std::uint32_t b, std::uint32_t a_scales, std::uint32_t b_scales) {
  Fp4Case c{};
  for (int lane = 0; lane < 32; ++lane) {
    for (std::uint32_t& r : c.a[lane]) r = a;
    for (std::uint32_t& r : c.b[lane]) r = b;
    c.a_scales[lane] = a_scales;
    c.b_scales[lane] = b_scales;
  }
  return c;
}

/// Returns the element of D in this row and column.
float sum_at(const Fp4Case& c, int row, int column) {
  return c.d[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2];
}

/// Returns one of 32 different scales: eight significands of four exponents.
constexpr std::uint32_t scale_of_lane(int lane) { return 0x28u + static_cast<std::uint32_t>(lane); }
/// Returns the lane whose scale multiplied 64 ones, or -1.
int lane_of(float sum) {
  for (int lane = 0; lane < 32; ++lane) {
    const omma::Scaled s = omma::scale_parts(static_cast<std::uint8_t>(scale_of_lane(lane)));
    if (sum == std::ldexp(static_cast<float>(s.significand), s.exponent - 3 + 6)) return lane;
  }
  return -1;
}

/// Returns a sentence on the lanes whose scales the instruction uses for a thread id, for A or B.
std::string observed_thread(const MultiplyFp4& multiply, bool of_a, int thread) {
  Fp4Case c = constant(kOnes, kOnes, kScalesOfOne, kScalesOfOne);
  for (int lane = 0; lane < 32; ++lane)
    (of_a ? c.a_scales : c.b_scales)[lane] = scale_of_lane(lane) * 0x01010101u;
  multiply({&c, 1}, of_a ? thread : 0, of_a ? 0 : thread);
  const std::string name =
      fmt::format("thread id {} of the scales of {}: ", thread, of_a ? "A" : "B");
  for (int line = 0; line < (of_a ? omma::kM : omma::kN); ++line) {
    const int by_ptx = of_a ? omma::a_scale_lane(line, thread) : omma::b_scale_lane(line, thread);
    const int got = lane_of(of_a ? sum_at(c, line, 0) : sum_at(c, 0, line));
    if (got == by_ptx) continue;
    return name + (got < 0 ? fmt::format("{} {} is multiplied by no lane's scale",
                                         of_a ? "row" : "column", line)
                           : fmt::format("{} {} takes that of lane {}, PTX says {}",
                                         of_a ? "row" : "column", line, got, by_ptx));
  }
  return name + "as PTX says";
}

/// The only product of a block in the first sum: a · b with its scales.
struct Term {
  unsigned a = 0, b = 0;  ///< codes
  std::uint8_t a_scale = 0x38, b_scale = 0x38;
};
float sum_of(const MultiplyFp4& multiply, const Term (&terms)[4], float before = 0) {
  Fp4Case c{};
  const auto bytes = [](const auto& of) {
    return std::uint32_t{of(0)} | std::uint32_t{of(1)} << 8 | std::uint32_t{of(2)} << 16 |
           std::uint32_t{of(3)} << 24;
  };
  const std::uint32_t a_scales = bytes([&](int j) { return terms[j].a_scale; });
  const std::uint32_t b_scales = bytes([&](int j) { return terms[j].b_scale; });
  for (int lane = 0; lane < 32; ++lane) {
    c.a_scales[lane] = a_scales;
    c.b_scales[lane] = b_scales;
    for (int r = 0; r < omma::kARegisters; ++r) {
      const omma::Element e = omma::a_element(lane, r, 0);
      if (e.line == 0 && e.k % 16 == 0) c.a[lane][r] = terms[e.k / 16].a;
    }
    for (int r = 0; r < omma::kBRegisters; ++r) {
      const omma::Element e = omma::b_element(lane, r, 0);
      if (e.line == 0 && e.k % 16 == 0) c.b[lane][r] = terms[e.k / 16].b;
    }
  }
  c.d[0][0] = before;
  multiply({&c, 1}, 0, 0);
  return sum_at(c, 0, 0);
}

constexpr unsigned kHalf = 1, kOne = 2, kMinus = 8;
/// Returns 2^exponent as E4M3, from 2^-9 to 2^8.
std::uint8_t power(int exponent) {
  return static_cast<std::uint8_t>(exponent < -6 ? 1 << (exponent + 9) : (exponent + 7) << 3);
}
/// Returns ±2^exponent, from 2^-20 to 2^16.
Term term(int exponent, unsigned sign = 0) {
  // Halves extend the range beyond that of the scales.
  const bool halves = exponent < -6;
  const int of_scales = halves ? exponent + 2 : exponent;
  const int a = of_scales / 2, b = of_scales - a;
  return {sign | (halves ? kHalf : kOne), halves ? kHalf : kOne, power(a), power(b)};
}

std::string observed_bits(const MultiplyFp4& multiply) {
  // The sum 2^16 - 2^16 + 2^e shows what remains of the last term.
  constexpr int kLarge = 16;
  int least = kLarge;
  for (int e = kLarge - 1; e >= -20; --e) {
    const Term terms[4] = {term(kLarge), term(e), term(kLarge, kMinus), {}};
    if (sum_of(multiply, terms) != std::ldexp(1.0f, e)) break;
    least = e;
  }
  return fmt::format(
      "bits behind the point of the largest exponent in a sum of four blocks: {}{} "
      "(MMA-Sim: {})",
      least == -20 ? "at least " : "", kLarge - least, omma::kFractionBits);
}

std::string observed_cut(const MultiplyFp4& multiply) {
  // ±(2^8 + three quarters of a unit of FP32) is not an FP32 number.
  const auto result = [&](unsigned sign) {
    const Term terms[4] = {term(8, sign), term(-16, sign), term(-17, sign), {}};
    return sum_of(multiply, terms);
  };
  constexpr float kBelow = 0x1p8f, kAbove = 0x1p8f + 0x1p-15f;
  const float positive = result(0), negative = result(kMinus);
  const char* how = "in another way";
  if (positive == kBelow && negative == -kBelow) how = "towards zero, as MMA-Sim says";
  if (positive == kAbove && negative == -kAbove) how = "to the nearest";
  if (positive == kBelow && negative == -kAbove) how = "down";
  if (positive == kAbove && negative == -kBelow) how = "up";
  return fmt::format("a sum becomes FP32 rounded {}", how);
}

std::string observed_terms(const MultiplyFp4& multiply) {
  // -2^-20 is below 35 bits: it is lost or becomes a whole unit.
  const Term terms[4] = {term(16), term(-20, kMinus), term(16, kMinus), {}};
  const float sum = sum_of(multiply, terms);
  return fmt::format("a negative term below the last bit is cut {}",
                     sum == 0                     ? "to zero, as MMA-Sim says"
                     : sum == -0x1p-20f           ? "not at all"
                     : sum < 0 && sum >= -0x1p-8f ? "down, to a unit"
                                                  : "in another way");
}

std::string observed_arithmetic(const MultiplyFp4& multiply) {
  std::vector<Fp4Case> got = random_fp4_cases(256), expected = got;
  multiply(got, 0, 0);
  multiply_fp4_on_host(expected, 0, 0);
  constexpr int kSums = 32 * 4;
  std::size_t same = 0;
  std::string first;
  for (std::size_t i = 0; i < got.size(); ++i) {
    for (int j = 0; j < kSums; ++j)
      same += std::bit_cast<std::uint32_t>(got[i].d[j / 4][j % 4]) ==
                      std::bit_cast<std::uint32_t>(expected[i].d[j / 4][j % 4])
                  ? 1
                  : 0;
    if (first.empty()) first = fp4_difference(got[i], expected[i]);
  }
  return fmt::format("the arithmetic of MMA-Sim {}: {} of {} random sums have its bits{}",
                     first.empty() ? "holds" : "does NOT hold", same, got.size() * kSums,
                     first.empty() ? "" : "; " + first);
}

}  // namespace

void multiply_fp4_on_host(std::span<Fp4Case> cases, int a_thread, int b_thread) {
  for (Fp4Case& c : cases) {
    std::uint32_t rows[omma::kM][8] = {}, columns[omma::kN][8] = {};
    for (int lane = 0; lane < 32; ++lane) {
      for (int r = 0; r < omma::kARegisters; ++r) {
        const omma::Element e = omma::a_element(lane, r, 0);
        rows[e.line][e.k / 8] = c.a[lane][r];
      }
      for (int r = 0; r < omma::kBRegisters; ++r) {
        const omma::Element e = omma::b_element(lane, r, 0);
        columns[e.line][e.k / 8] = c.b[lane][r];
      }
    }
    for (int lane = 0; lane < 32; ++lane)
      for (int r = 0; r < omma::kDRegisters; ++r) {
        const omma::Element e = omma::d_element(lane, r);
        c.d[lane][r] = std::bit_cast<float>(
            omma::add_product(std::bit_cast<std::uint32_t>(c.d[lane][r]), rows[e.line],
                              c.a_scales[omma::a_scale_lane(e.line, a_thread)], columns[e.k],
                              c.b_scales[omma::b_scale_lane(e.k, b_thread)]));
      }
  }
}

std::vector<Fp4Case> exact_fp4_cases(int count) {
  std::vector<Fp4Case> cases(static_cast<std::size_t>(count));
  Random random(11);
  constexpr std::uint32_t kScales[] = {0x30, 0x38, 0x40};  // a half, one and two
  const auto scales = [&] {
    std::uint32_t word = 0;
    for (int j = 0; j < 4; ++j) word |= kScales[random.below(3)] << 8 * j;
    return word;
  };
  for (Fp4Case& c : cases)
    for (int lane = 0; lane < 32; ++lane) {
      for (std::uint32_t& r : c.a[lane]) r = random.bits();
      for (std::uint32_t& r : c.b[lane]) r = random.bits();
      c.a_scales[lane] = scales();
      c.b_scales[lane] = scales();
      for (float& d : c.d[lane]) d = static_cast<float>(random.below(2001) - 1000);
    }
  return cases;
}

std::vector<Fp4Case> random_fp4_cases(int count) {
  std::vector<Fp4Case> cases(static_cast<std::size_t>(count));
  Random random(12);
  int i = 0;
  for (Fp4Case& c : cases) {
    // One half of the cases has scales of every size, the other of neighboring sizes.
    const bool any = i++ % 2 == 0;
    const auto scales = [&] {
      std::uint32_t word = 0;
      for (int j = 0; j < 4; ++j)
        word |= static_cast<std::uint32_t>(any ? random.below(0x7F) : 0x30 + random.below(16))
                << 8 * j;
      return word;
    };
    for (int lane = 0; lane < 32; ++lane) {
      for (std::uint32_t& r : c.a[lane]) r = random.bits();
      for (std::uint32_t& r : c.b[lane]) r = random.bits();
      c.a_scales[lane] = scales();
      c.b_scales[lane] = scales();
      for (float& d : c.d[lane]) d = std::ldexp(random.value(), random.below(any ? 40 : 12));
    }
  }
  return cases;
}

std::string fp4_difference(const Fp4Case& got, const Fp4Case& expected) {
  for (int lane = 0; lane < 32; ++lane)
    for (int r = 0; r < omma::kDRegisters; ++r) {
      const float g = got.d[lane][r], e = expected.d[lane][r];
      if (std::bit_cast<std::uint32_t>(g) == std::bit_cast<std::uint32_t>(e)) continue;
      const omma::Element at = omma::d_element(lane, r);
      return fmt::format("row {} column {} is {:a}, must be {:a}", at.line, at.k, g, e);
    }
  return {};
}

std::vector<std::string> observed_fp4(const MultiplyFp4& multiply) {
  std::vector<std::string> all;
  for (const int thread : {0, 1}) all.push_back(observed_thread(multiply, true, thread));
  for (const int thread : {0, 1, 2, 3}) all.push_back(observed_thread(multiply, false, thread));
  all.push_back(observed_bits(multiply));
  all.push_back(observed_terms(multiply));
  all.push_back(observed_cut(multiply));
  all.push_back(observed_arithmetic(multiply));
  return all;
}

void check_fp4_instruction(Run& run, const Subject& subject) {
  const bool on_gpu = subject.device.type == DeviceType::cuda;
  if (on_gpu && !has_fp4_instruction(subject.device)) return;
  const MultiplyFp4 multiply = [&](std::span<Fp4Case> cases, int a_thread, int b_thread) {
    if (on_gpu)
      multiply_fp4(subject.device, cases, a_thread, b_thread);
    else
      multiply_fp4_on_host(cases, a_thread, b_thread);
  };
  const auto compare = [&](std::string_view part, std::vector<Fp4Case> got) {
    std::vector<Fp4Case> expected = got;
    multiply_fp4_on_host(expected, 0, 0);
    run.check(subject, {"fp4", part}, "", [&](SelftestCheck& c) {
      multiply(got, 0, 0);
      c.cases += static_cast<std::int64_t>(got.size()) - 1;
      run.inject_fault("fp4", got[0].d);
      std::string fault;
      for (std::size_t i = 0; i < got.size() && fault.empty(); ++i)
        fault = fp4_difference(got[i], expected[i]);
      return fault;
    });
  };
  compare("exact", exact_fp4_cases(64));
  // The order of summation of real hardware is unknown here; a software instruction must match it.
  if (!on_gpu) compare("sums", random_fp4_cases(64));
  const std::string name =
      fmt::format("{}, mma.m16n8k64{}", subject.name, on_gpu ? "" : " in software");
  std::vector<std::string>& found = run.report().fp4_instruction;
  try {
    for (const std::string& sentence : observed_fp4(multiply))
      found.push_back(fmt::format("{}: {}", name, sentence));
  } catch (const std::exception& e) {
    found.push_back(fmt::format("{}: {}", name, e.what()));
  }
}

}  // namespace nvfp4::selftest
