// Quantizer::four_over_six on the CPU.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/encode_four_over_six.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that they are compiled for each target:
#include "backends/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {

struct FourOverSixKernel {
  static constexpr bool kBlocksOf32 = true;
  static constexpr bool kStoresOnce = true;
  template <int B, class Blocks>
  static void run(const Blocks& blocks, std::int64_t n, const EncodeJob&, std::uint8_t* scales) {
    encode_run<B>(blocks, n, scales, encode_group<Quantizer::four_over_six, false, B>);
  }
};

}  // namespace

void encode_four_over_six(const EncodeJob& job, const Tile& tile) {
  encode_tile<FourOverSixKernel>(job, tile);
}
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
