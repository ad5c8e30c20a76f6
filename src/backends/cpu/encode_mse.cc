// Quantizer::mse on the CPU.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/encode_mse.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that they are compiled for each target:
#include "backends/cpu/mse-inl.h"
#include "backends/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {

void encode_special(Batch<16>& batch) { encode_group<Quantizer::mse, false>(&batch, 1); }

/// Blocks that the filter could not decide. They are encoded once they fill the lanes.
template <void (*kEncode)(Batch<16>&)>
class Collected {
 public:
  /// Adds the lanes of `from`, whose first block is `first`.
  template <class Blocks>
  void add(const Blocks& blocks, std::uint8_t* scales, std::int64_t first, const Batch<16>& from,
           std::uint64_t lanes) {
    for (; lanes != 0; lanes &= lanes - 1) {
      const auto lane = static_cast<std::size_t>(__builtin_ctzll(lanes));
      add_one(blocks, scales, first + static_cast<std::int64_t>(lane), from, lane);
    }
  }
  template <class Blocks>
  void add_one(const Blocks& blocks, std::uint8_t* scales, std::int64_t index,
               const Batch<16>& from, std::size_t lane) {
    for (std::size_t i = 0; i < 16; ++i) batch_.x[i * kLanes + count_] = from.x[i * kLanes + lane];
    batch_.divisor[count_] = from.divisor[lane];
    batch_.multiplier[count_] = from.multiplier[lane];
    index_[count_] = index;
    if (++count_ == kLanes) flush(blocks, scales);
  }
  template <class Blocks>
  void flush(const Blocks& blocks, std::uint8_t* scales) {
    if (count_ == 0) return;
    for (std::size_t lane = count_; lane < kLanes; ++lane) {  // repeat the first one
      for (std::size_t i = 0; i < 16; ++i) batch_.x[i * kLanes + lane] = batch_.x[i * kLanes];
      batch_.divisor[lane] = batch_.divisor[0];
      batch_.multiplier[lane] = batch_.multiplier[0];
    }
    kEncode(batch_);
    for (std::size_t lane = 0; lane < count_; ++lane) {
      blocks.store_one(index_[lane], batch_, lane);
      scales[index_[lane]] = static_cast<std::uint8_t>(batch_.scale[lane]);
    }
    count_ = 0;
  }

 private:
  Batch<16> batch_;
  std::int64_t index_[kLanes];
  std::size_t count_ = 0;
};

/// Same as encode_run(), with the filter.
template <class Blocks>
void encode_run_filtered(const Blocks& blocks, std::int64_t n, std::uint8_t* scales) {
  Batch<16> batches[kGroup];
  OpenLanes open[kGroup];
  Collected<encode_undecided> undecided;
  Collected<encode_special> special;
  for_each_group<Blocks>(n, [&](std::int64_t first, std::int64_t step, int count) {
    for (int g = 0; g < count; ++g)
      blocks.load(first + g * step, lanes_of(n, first + g * step), batches[g]);
    encode_group_mse(batches, count, open);
    for (int g = 0; g < count; ++g) {
      const std::int64_t i = first + g * step, lanes = lanes_of(n, i);
      blocks.store(i, lanes, batches[g]);
      store_scales(batches[g].scale, lanes, scales + i);
      const std::uint64_t present = (1ull << lanes) - 1;
      undecided.add(blocks, scales, i, batches[g], open[g].undecided & present);
      special.add(blocks, scales, i, batches[g], open[g].special & present);
    }
  });
  undecided.flush(blocks, scales);
  special.flush(blocks, scales);
}

struct MseKernel {
  static constexpr bool kBlocksOf32 = true;
  static constexpr bool kStoresOnce = false;
  template <int B, class Blocks>
  static void run(const Blocks& blocks, std::int64_t n, const EncodeJob& job,
                  std::uint8_t* scales) {
    const bool weighted = job.weights != nullptr;
    if constexpr (B == 16) {
      if (!weighted) return encode_run_filtered(blocks, n, scales);
    }
    encode_run<B>(
        blocks, n, scales,
        weighted ? encode_group<Quantizer::mse, true, B> : encode_group<Quantizer::mse, false, B>);
  }
};

}  // namespace

void encode_mse(const EncodeJob& job, const Tile& tile) { encode_tile<MseKernel>(job, tile); }
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
