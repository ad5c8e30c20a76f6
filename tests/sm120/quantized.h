#pragma once

#include "quantizers/encode_block.h"
#include "sm120/cases.h"

namespace nvfp4::test {

/// Quantized outputs of SwiGLU are the codes of those in FP32, as the definition has them; rows
/// that name no group, and the row behind the last, are untouched.
template <class Config, class Machine>
void expect_quantized(const cuda::Kernel& kernel, Machine&& machine) {
  constexpr int kRows = 12, kOutputs = 48, kScales = kOutputs / 16;
  const bool routed = kernel.mainloop == cuda::MainloopKind::routed;
  const OmmaOperands operands({.n = 2 * kOutputs,
                               .k = 192,
                               .rows = kRows,
                               .top_k = routed ? 1 : 0,
                               .scales = Scales::near_one});
  const std::vector<std::uint8_t> values = output_of<Config>(operands, kOutputs, machine);
  std::vector<std::uint8_t> codes((kRows + 1) * kOutputs / 2, 0xAA);
  std::vector<std::uint8_t> scales((kRows + 1) * kScales, 0xAA);
  const GlobalScale global{.multiplier = 0.25f, .divisor = 4.0f};
  const std::uint8_t *to_codes = nullptr, *to_scales = nullptr;
  output_of<Config>(operands, kOutputs, machine, [&](cuda::KernelArguments& p) {
    to_codes = p.codes = machine.put(codes);
    to_scales = p.scales = machine.put(scales);
    p.out_globals.value = global;
  });
  machine.get(codes, to_codes);
  machine.get(scales, to_scales);
  for (int row = 0; row <= kRows; ++row) {
    const bool untouched =
        row == kRows || (routed && operands.ids[static_cast<std::size_t>(row)] != 0);
    for (int block = 0; block < kScales; ++block) {
      float v[16];
      std::memcpy(v, values.data() + (row * kOutputs + block * 16) * 4, sizeof v);
      E4M3 scale{0xAA};
      std::uint8_t expected[8];
      std::memset(expected, 0xAA, sizeof expected);
      if (!untouched) {
        scale = choose_scale(Quantizer::max, v, nullptr, 16, global.divisor);
        encode_elements(v, 16, scale, global.divisor, expected);
      }
      const auto at = static_cast<std::size_t>(row * kScales + block);
      EXPECT_EQ(scales[at], scale.bits) << "row " << row << " block " << block;
      EXPECT_EQ(std::memcmp(expected, &codes[at * 8], 8), 0) << "row " << row << " block " << block;
    }
  }
}

}  // namespace nvfp4::test
