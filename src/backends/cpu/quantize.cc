// Quantization on the CPU. Each quantizer is compiled in its own file; this file dispatches.
#include "backends/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/quantize.cc"
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

bool fill_encode_here(Backend& backend) {
  backend.encode = encode;
  backend.pack = encode;
  return true;
}
#else
bool fill_encode_here(Backend&) { return false; }
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nvfp4::cpu {
HWY_EXPORT(fill_encode_here);
bool fill_encode(Backend& backend) { return HWY_DYNAMIC_DISPATCH(fill_encode_here)(backend); }
}  // namespace nvfp4::cpu
#endif
