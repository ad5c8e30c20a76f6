// Compares quantization that is fused with the producer of activations with the reference, bit for
// bit, and the reference with checksums.
#include "nvfp4/activation.h"
#include "selftest/compared.h"
#include "selftest/inputs.h"
#include "selftest/run.h"

namespace nvfp4::selftest {
namespace {

constexpr std::int64_t kRows = 37, kCols = 464;

enum class Operation { rms_norm, swiglu };

struct Fused {
  Operation operation;
  std::string_view part;
  std::uint64_t checksum;  ///< checksum of the reference's bytes
};
constexpr Fused kFused[] = {{Operation::rms_norm, "RMSNorm", 0xcb4da38bb09830a8},
                            {Operation::swiglu, "SwiGLU", 0x81baec920da3fbac}};

QuantizedMatrix run_fused(Operation operation, const Subject& s, DType type, Quantizer quantizer) {
  const bool swiglu = operation == Operation::swiglu;
  const Matrix x =
      to_device(random_matrix(type, kRows, swiglu ? 2 * kCols : kCols, 11).view(), s.device);
  const Matrix weight = to_device(random_matrix(DType::f32, 1, kCols, 12).view(), s.device);
  QuantizedMatrix out({.rows = kRows, .cols = kCols, .scope = GlobalScope::vector}, s.device);
  const QuantizeOptions options{
      .quantizer = quantizer, .scope = GlobalScope::vector, .backend = s.backend};
  if (swiglu)
    swiglu_quantize_into(x.view(), out.span(), {}, options);
  else
    rms_norm_quantize_into(x.view(), {weight.data<float>(), static_cast<std::size_t>(kCols)},
                           out.span(), {}, options);
  return to_device(out.view(), {});
}

}  // namespace

void check_fused(Run& run, const std::vector<Subject>& subjects) {
  for (const Fused& f : kFused) {
    Checksum sum;
    for (const DType type : {DType::f32, DType::bf16, DType::f16})
      for (const Quantizer quantizer : kQuantizers) {
        const QuantizedMatrix want = run_fused(
            f.operation, {.name = std::string(kReference), .backend = std::string(kReference)},
            type, quantizer);
        for (const Subject& s : subjects)
          if (s.backend != kReference)
            run.check(s, {"fused", f.part},
                      fmt::format("{}, {}", dtype_name(type), quantizer_name(quantizer)),
                      [&](SelftestCheck&) {
                        const QuantizedMatrix got = run_fused(f.operation, s, type, quantizer);
                        run.inject_fault("fused", got.codes());
                        return differences(got, want);
                      });
        run.inject_fault("fused", want.codes());
        sum.add(want);
      }
    for (const Subject& s : subjects)
      if (s.backend == kReference)
        run.check(s, {"fused", f.part}, "",
                  [&](SelftestCheck&) { return wrong_sum(sum, f.checksum); });
  }
}

}  // namespace nvfp4::selftest
