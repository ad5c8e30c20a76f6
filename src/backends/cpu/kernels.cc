// All kernels of a target. Each kind is compiled in its own file.
#include "backends/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that it is compiled for each target:
#include "backends/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {  // the other files of this folder have functions of the same names

void encode(const EncodeJob& job, const Tile& tile) {
  switch (job.quantizer) {
    case Quantizer::max:
      return encode_max(job, tile);
    case Quantizer::four_over_six:
      return encode_four_over_six(job, tile);
    case Quantizer::mse:
      return job.hessian.data != nullptr ? encode_hessian(job, tile) : encode_mse(job, tile);
  }
}

}  // namespace

void fill_decode(Backend& backend);
void fill_measure(Backend& backend);
void fill_rows(Backend& backend);
void fill_gram(Backend& backend);
void fill_gptq(Backend& backend);
void fill_subtract_product(Backend& backend);
void fill_w4a4(Backend& backend);
void fill_w4a16(Backend& backend);
void fill_digits(Backend& backend);  ///< must follow fill_w4a16()

bool fill_here(Backend& backend) {
  backend.encode = backend.pack = encode;
  for (const auto fill : {fill_decode, fill_measure, fill_rows, fill_gram, fill_gptq,
                          fill_subtract_product, fill_w4a4, fill_w4a16, fill_digits})
    fill(backend);
  return true;
}
#else
bool fill_here(Backend&) { return false; }
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nvfp4::cpu {
HWY_EXPORT(fill_here);
bool fill(Backend& backend) { return HWY_DYNAMIC_DISPATCH(fill_here)(backend); }
}  // namespace nvfp4::cpu
#endif
