// Compares quantizers and dequantization with the reference, bit for bit, and the reference with
// checksums. These are the same on every machine.
#include <array>
#include <cstring>

#include "nvfp4/quantize.h"
#include "selftest/compared.h"
#include "selftest/inputs.h"
#include "selftest/run.h"

namespace nvfp4::selftest {
namespace {

/// The checksums of all cases below, in their order. docs/numerics.md defines the results, so they
/// never change.
constexpr std::uint64_t kQuantizedSums[] = {0x5ab8311de9cc741c, 0x62cdf96c95a9e620,
                                            0xc439703fe05f592f},
                        kDequantizedSum = 0x287eb7ed8cc2f111;

struct Case {
  Matrix x;
  QuantizeOptions options;
  std::string what;
};

std::vector<Case> cases_of(Quantizer quantizer) {
  std::vector<Case> cases;
  for (const DType type : {DType::bf16, DType::f16})
    cases.push_back(
        {every_value(type), {.quantizer = quantizer}, fmt::format("every {}", dtype_name(type))});
  std::uint64_t seed = 0;
  for (const DType type : {DType::f32, DType::bf16, DType::f16})
    for (const BlockAxis axis : {BlockAxis::rows, BlockAxis::columns})
      for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector}) {
        const ScaleLayout layout = ++seed % 3 == 0 ? ScaleLayout::tiled_128x4 : ScaleLayout::linear;
        cases.push_back(
            {random_matrix(type, 48, 208, seed),
             {.quantizer = quantizer, .axis = axis, .layout = layout, .scope = scope},
             fmt::format("[48, 208] {}, blocks along {}, scales {}, a global scale for each {}",
                         dtype_name(type), axis == BlockAxis::rows ? "rows" : "columns",
                         layout_name(layout), scope == GlobalScope::tensor ? "tensor" : "vector")});
      }
  return cases;
}

QuantizedMatrix quantized(const Subject& s, const Case& c) {
  QuantizeOptions options = c.options;
  options.backend = s.backend;
  return to_device(quantize(to_device(c.x.view(), s.device).view(), options).view(), {});
}

}  // namespace

void check_quantizers(Run& run, const std::vector<Subject>& subjects) {
  for (std::size_t i = 0; i < std::size(kQuantizers); ++i) {
    const std::string part(quantizer_name(kQuantizers[i]));
    Checksum sum;
    for (const Case& c : cases_of(kQuantizers[i])) {
      const QuantizedMatrix want =
          quantized({.name = std::string(kReference), .backend = std::string(kReference)}, c);
      for (const Subject& s : subjects)
        if (s.backend != kReference)
          run.check(s, {"quantize", part}, c.what, [&](SelftestCheck&) {
            const QuantizedMatrix got = quantized(s, c);
            run.inject_fault("quantize", got.codes());
            return differences(got, want);
          });
      run.inject_fault("quantize", want.codes());
      sum.add(want);
    }
    for (const Subject& s : subjects)
      if (s.backend == kReference)
        run.check(s, {"quantize", part}, "",
                  [&](SelftestCheck&) { return wrong_sum(sum, kQuantizedSums[i]); });
  }
}

void check_dequantize(Run& run, const std::vector<Subject>& subjects) {
  Checksum sum;
  for (const BlockAxis axis : {BlockAxis::rows, BlockAxis::columns})
    for (const ScaleLayout layout : {ScaleLayout::linear, ScaleLayout::tiled_128x4}) {
      const QuantizedMatrix q =
          quantize(random_matrix(DType::f32, 80, 112, 5).view(), {.quantizer = Quantizer::max,
                                                                  .axis = axis,
                                                                  .layout = layout,
                                                                  .scope = GlobalScope::vector,
                                                                  .backend = kReference});
      for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
        const std::int64_t bytes = q.shape().rows * q.shape().cols * dtype_size(type);
        Matrix want = dequantize(q.view(), type, kReference);
        for (const Subject& s : subjects)
          if (s.backend != kReference)
            run.check(
                s, {"dequantize", dtype_name(type)},
                fmt::format("blocks along {}, scales {}",
                            axis == BlockAxis::rows ? "rows" : "columns", layout_name(layout)),
                [&](SelftestCheck&) {
                  const QuantizedMatrix there = to_device(q.view(), s.device);
                  Matrix got = to_device(dequantize(there.view(), type, s.backend).view(), {});
                  run.inject_fault("dequantize", got.data<std::uint8_t>());
                  return difference("bytes of the result", got.data<std::uint8_t>(),
                                    want.data<std::uint8_t>(), bytes);
                });
        run.inject_fault("dequantize", want.data<std::uint8_t>());
        sum.add(want.data<std::uint8_t>(), bytes);
      }
    }
  for (const Subject& s : subjects)
    if (s.backend == kReference)
      run.check(s, {"dequantize", "all"}, "",
                [&](SelftestCheck&) { return wrong_sum(sum, kDequantizedSum); });
}

}  // namespace nvfp4::selftest
