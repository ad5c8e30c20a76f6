// Quantizer::max and Quantizer::four_over_six on the CPU.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/encode_blocks.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that they are compiled for each target:
#include "backends/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {

struct MaxKernel {
  static constexpr bool kBlocksOf32 = false;
  static constexpr bool kStoresOnce = true;
  template <int B, class Blocks>
  static void run(const Blocks& blocks, std::int64_t n, const EncodeJob&, std::uint8_t* scales) {
    Batch<B, Blocks::kLoadsPairs> batches[kGroup];
    for_each_group<Blocks>(n, [&](std::int64_t first, std::int64_t step, int count) {
      // While one batch is loaded, the scale of another is computed.
      for (int g = 0; g < count; ++g) {
        blocks.load(first + g * step, lanes_of(n, first + g * step), batches[g]);
        set_scale(batches[g], choose_scale<Quantizer::max, false>(batches[g]));
      }
      for (int g = 0; g < count; ++g) {
        const std::int64_t i = first + g * step;
        pack_codes(batches[g]);
        blocks.store(i, lanes_of(n, i), batches[g]);
        store_scales(batches[g].scale, lanes_of(n, i), scales + i);
      }
    });
  }
};

struct FourOverSixKernel {
  static constexpr bool kBlocksOf32 = true;
  static constexpr bool kStoresOnce = true;
  template <int B, class Blocks>
  static void run(const Blocks& blocks, std::int64_t n, const EncodeJob&, std::uint8_t* scales) {
    encode_run<B>(blocks, n, scales, encode_group<Quantizer::four_over_six, false, B>);
  }
};

}  // namespace

void encode_max(const EncodeJob& job, const Tile& tile) { encode_tile<MaxKernel>(job, tile); }
void encode_four_over_six(const EncodeJob& job, const Tile& tile) {
  encode_tile<FourOverSixKernel>(job, tile);
}
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
