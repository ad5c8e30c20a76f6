// Compares E2M1, E4M3 and the layouts of scales with tables that are computed here by other means.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "nvfp4/quantize.h"
#include "selftest/compared.h"
#include "selftest/inputs.h"
#include "selftest/run.h"

namespace nvfp4::selftest {

namespace {

/// Returns the finite magnitudes of a format with `mantissa` bits and subnormals in steps of
/// 2^least.
std::vector<double> magnitudes(int codes, int mantissa, int least) {
  std::vector<double> all;
  for (int code = 0; code < codes; ++code) {
    const int exponent = code >> mantissa, fraction = code & ((1 << mantissa) - 1);
    all.push_back(exponent == 0 ? std::ldexp(fraction, least)
                                : std::ldexp((1 << mantissa) + fraction, exponent - 1 + least));
  }
  return all;
}
const std::vector<double>& e2m1_values() {
  static const std::vector<double> all = magnitudes(8, 1, -1);
  return all;
}
const std::vector<double>& e4m3_values() {
  static const std::vector<double> all = magnitudes(0x7F, 3, -9);
  return all;
}

/// Returns the code of the nearest value; in the middle of two values, the even code.
int nearest(const std::vector<double>& values, double magnitude) {
  int best = 0;
  for (int code = 1; code < static_cast<int>(values.size()); ++code) {
    const double here = std::abs(values[static_cast<std::size_t>(code)] - magnitude),
                 there = std::abs(values[static_cast<std::size_t>(best)] - magnitude);
    if (here < there || (here == there && code % 2 == 0)) best = code;
  }
  return best;
}

int code_at(const QuantizedMatrix& q, std::int64_t i) {
  return q.codes()[i / 2] >> (i % 2 * 4) & 0xF;
}

std::string check_elements(Run& run, const Subject& s, DType type) {
  const Matrix x = every_element(type);
  const GlobalScale one;
  const QuantizedMatrix q =
      to_device(quantize(to_device(x.view(), s.device).view(),
                         {.quantizer = Quantizer::max, .global = {&one, 1}, .backend = s.backend})
                    .view(),
                {});
  run.inject_fault("formats", q.codes());
  for (std::int64_t i = 0; i < x.view().size(); ++i) {
    const float v = x.view().at(i / x.cols(), i % x.cols());
    const int want =
        (std::signbit(v) ? 8 : 0) | nearest(e2m1_values(), static_cast<double>(std::abs(v)));
    if (code_at(q, i) != want)
      return fmt::format("{} became {}, must be {}", v, code_at(q, i), want);
  }
  return {};
}

std::string check_scales(Run& run, const Subject& s, DType type) {
  const Matrix x = every_largest(type);
  const GlobalScale six = GlobalScale::from_divisor(6.0f);
  const QuantizedMatrix q =
      to_device(quantize(to_device(x.view(), s.device).view(),
                         {.quantizer = Quantizer::max, .global = {&six, 1}, .backend = s.backend})
                    .view(),
                {});
  run.inject_fault("formats", q.scales());
  for (std::int64_t block = 0; block < 65536; ++block) {
    const double a = std::abs(static_cast<double>(x.view().at(block / 16, block % 16 * 16 + 15)));
    const int want = std::isnan(a) ? 0 : a >= 448 ? 0x7E : nearest(e4m3_values(), a);
    if (q.scales()[block] != want)
      return fmt::format("{} became 0x{:02x}, must be 0x{:02x}", a, q.scales()[block], want);
  }
  return {};
}

/// Checks every code with every scale.
std::string check_values(Run& run, const Subject& s) {
  constexpr std::int64_t kScales = 0x7F;
  const QuantizedMatrix q({.rows = kScales, .cols = kBlock});
  for (std::int64_t i = 0; i < kScales * kBlock / 2; ++i)
    q.codes()[i] = static_cast<std::uint8_t>(2 * (i % 8) | (2 * (i % 8) + 1) << 4);
  std::iota(q.scales(), q.scales() + kScales, std::uint8_t{0});
  q.global_scale()[0] = 1.0f;
  Matrix got =
      to_device(dequantize(to_device(q.view(), s.device).view(), DType::f32, s.backend).view(), {});
  run.inject_fault("formats", got.data<float>() + 1);
  for (std::int64_t i = 0; i < kScales * kBlock; ++i) {
    const int code = static_cast<int>(i % kBlock);
    const double magnitude = e2m1_values()[static_cast<std::size_t>(code % 8)] *
                             e4m3_values()[static_cast<std::size_t>(i / kBlock)];
    const auto want = static_cast<float>(code < 8 ? magnitude : -magnitude);
    if (std::bit_cast<std::uint32_t>(got.data<float>()[i]) != std::bit_cast<std::uint32_t>(want))
      return fmt::format("code {} under scale 0x{:02x} became {}, must be {}", code, i / kBlock,
                         got.data<float>()[i], want);
  }
  return {};
}

/// Returns scales in the order that cuBLAS and CUTLASS read and block_scale_interleave writes. The
/// matrix of scales is padded with zeros to [128 · R, 4 · C], viewed as [R, 4, 32, C, 4] and stored
/// as [R, C, 32, 4, 4].
std::vector<std::uint8_t> interleaved(const std::vector<std::uint8_t>& scales, std::int64_t rows,
                                      std::int64_t blocks) {
  const std::int64_t tall = (rows + 127) / 128, wide = (blocks + 3) / 4;
  std::vector<std::uint8_t> out;
  for (std::int64_t r = 0; r < tall; ++r)
    for (std::int64_t c = 0; c < wide; ++c)
      for (std::int64_t lane = 0; lane < 32; ++lane)
        for (std::int64_t quarter = 0; quarter < 4; ++quarter)
          for (std::int64_t b = 0; b < 4; ++b) {
            const std::int64_t row = r * 128 + quarter * 32 + lane, block = c * 4 + b;
            out.push_back(row < rows && block < blocks
                              ? scales[static_cast<std::size_t>(row * blocks + block)]
                              : std::uint8_t{0});
          }
  return out;
}

std::string check_interleaved(Run& run, const Subject& s, std::int64_t rows, std::int64_t blocks) {
  const auto bytes_of = [](const std::vector<std::uint8_t>& v) {
    return static_cast<std::int64_t>(v.size());
  };
  Random random(static_cast<std::uint64_t>(rows));
  std::vector<std::uint8_t> linear(static_cast<std::size_t>(rows * blocks));
  for (std::uint8_t& scale : linear) scale = static_cast<std::uint8_t>(1 + random.below(0x7E));
  std::vector<std::uint8_t> want = interleaved(linear, rows, blocks), got(want.size(), 0xFF),
                            back(linear.size());
  const auto there = [&](const std::vector<std::uint8_t>& v) {
    Matrix host(DType::bf16, 1, (bytes_of(v) + 1) / 2);
    std::memcpy(host.data<std::uint8_t>(), v.data(), v.size());
    return to_device(host.view(), s.device);
  };
  const auto move = [&](const std::vector<std::uint8_t>& from, ScaleLayout in,
                        std::vector<std::uint8_t>& to, ScaleLayout out) {
    const Matrix source = there(from);
    Matrix target = there(to);
    relayout_scales({source.data<std::uint8_t>(), from.size()}, in,
                    {target.data<std::uint8_t>(), to.size()}, out, rows, blocks, s.device);
    const Matrix host = to_device(target.view(), {});
    std::memcpy(to.data(), host.data<std::uint8_t>(), to.size());
  };
  move(linear, ScaleLayout::linear, got, ScaleLayout::tiled_128x4);
  run.inject_fault("layouts", got.data());
  std::string fault = difference("tiled_128x4", got.data(), want.data(), bytes_of(want));
  move(want, ScaleLayout::tiled_128x4, back, ScaleLayout::linear);
  if (fault.empty()) fault = difference("linear", back.data(), linear.data(), bytes_of(linear));
  return fault;
}

}  // namespace

void check_formats(Run& run, const Subject& s) {
  for (const DType type : {DType::bf16, DType::f16}) {
    const std::string every = fmt::format("every {}", dtype_name(type));
    run.check(s, {"formats", "to E2M1"}, every,
              [&](SelftestCheck&) { return check_elements(run, s, type); });
    run.check(s, {"formats", "to E4M3"}, every,
              [&](SelftestCheck&) { return check_scales(run, s, type); });
  }
  run.check(s, {"formats", "to FP32"}, "every code, every scale",
            [&](SelftestCheck&) { return check_values(run, s); });
}

void check_layouts(Run& run, const Subject& s) {
  for (const std::int64_t rows : {1, 32, 100, 128, 300})
    for (const std::int64_t blocks : {1, 4, 7, 16})
      run.check(s, {"layouts", "tiled_128x4"}, fmt::format("[{}, {}]", rows, blocks),
                [&](SelftestCheck&) { return check_interleaved(run, s, rows, blocks); });
}

}  // namespace nvfp4::selftest
