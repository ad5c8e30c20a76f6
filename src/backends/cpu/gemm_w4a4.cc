// W4A4: exact integer dot products of doubled codes; scales and sums in FP32.
#include "backends/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm_w4a4.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that it is compiled for each target:
#include "backends/cpu/dot-inl.h"

#if HWY_TARGET <= HWY_AVX3_DL
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
#else
HWY_BEFORE_NAMESPACE();
#endif
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {

constexpr float kMagic = 0x1.8p23f;  // its last bit is worth 1

/// A row and block of x. An integer sum q is the bits of the float kMagic + q. One FMA converts it
/// to q · scale, exactly: (kMagic + q) · scale + offset.
struct Record {
  Word codes[4];       ///< doubled; each half block has its even elements, then the odd ones
  std::int32_t start;  ///< start of the integer sum
  float scale;         ///< E4M3 / 4, because codes are doubled on both sides, · 2^kScaleExponent
  float offset;        ///< -kMagic · scale
  std::int32_t unused;
};

HWY_INLINE VF to_scaled(VI sum, const Record& r) {
  if constexpr (kFused)
    return hn::MulAdd(hn::BitCast(F32(), sum), set_f32(r.scale), set_f32(r.offset));
  else
    return hn::Mul(hn::ConvertTo(F32(), sum), set_f32(r.scale));
}

HWY_INLINE void prepare_block(const std::uint8_t* codes, float scale, Record* record) {
  const hn::FixedTag<std::uint8_t, 16> d;
  const hn::FixedTag<std::uint16_t, 8> d16;
  const hn::FixedTag<std::uint32_t, 4> d32;
  const hn::FixedTag<std::uint64_t, 2> d64;
  alignas(16) static constexpr std::uint8_t kPlus12[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                           12, 11, 10, 9,  8,  6,  4,  0};
  std::uint64_t packed = 0;
  std::memcpy(&packed, codes, sizeof packed);
  const auto bytes = hn::BitCast(d, hn::Set(d64, packed));
  const auto mask = hn::Set(d, 0x0F);
  const auto low = hn::And(bytes, mask);
  const auto high = hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, bytes))), mask);
  const auto order =
      hn::BitCast(d, hn::InterleaveLower(d32, hn::BitCast(d32, low), hn::BitCast(d32, high)));
  const auto plus12 = hn::TableLookupBytes(hn::Load(d, kPlus12), order);
  alignas(16) std::uint64_t sums[2];
  hn::Store(hn::SumsOf8(plus12), d64, sums);
  const int sum = static_cast<int>(sums[0] + sums[1]) - 12 * kBlock;
  hn::StoreU(hn::Sub(plus12, hn::Set(d, 12)), d, reinterpret_cast<std::uint8_t*>(record->codes));
  record->start = (kFused ? static_cast<std::int32_t>(float_bits(kMagic)) : 0) - kCodeBias * sum;
  record->scale = scale;
  record->offset = -kMagic * scale;
  record->unused = 0;
}

void prepare(const Activations& x, std::int64_t row, int rows, std::byte* records) {
  constexpr float kFactor = 0.25f * static_cast<float>(1 << kScaleExponent);
  auto* record = reinterpret_cast<Record*>(records);
  for (std::int64_t b = 0; b < x.blocks; ++b)
    for (int t = 0; t < rows; ++t, ++record) {
      const E4M3 scale{x.scales[(row + t) * x.scale_stride + b]};
      prepare_block(x.codes + (row + t) * x.code_stride + b * (kBlock / 2),
                    scale.to_float() * kFactor, record);
    }
}

/// Computes sum[t * kWide + j] += the block's products of kRows rows of x with kWide vectors of
/// weights.
template <class D, int kRows, int kWide>
HWY_INLINE void add_rows(const VU8 (&w)[kWide][4], const VF (&scale)[kWide], const Record* r,
                         VF* HWY_RESTRICT sum) {
  VI q[kRows][kWide];
  HWY_UNROLL(8)
  for (int t = 0; t < kRows; ++t) {
    const VI start = hn::Set(I32(), r[t].start);
    HWY_UNROLL(2)
    for (int j = 0; j < kWide; ++j) q[t][j] = start;
  }
  D::dots(w, q, [&](int t, int i) { return &r[t].codes[i]; });
  HWY_UNROLL(8)
  for (int t = 0; t < kRows; ++t) {
    HWY_UNROLL(2)
    for (int j = 0; j < kWide; ++j)
      sum[t * kWide + j] = hn::MulAdd(to_scaled(q[t][j], r[t]), scale[j], sum[t * kWide + j]);
  }
}

/// Same as add_rows(), for any number of rows, in groups that suit D.
template <class D, int kRows, int kWide>
HWY_INLINE void add_block(const VU8 (&w)[kWide][4], const VF (&scale)[kWide], const Record* r,
                          VF* HWY_RESTRICT sum) {
  constexpr int kNow = kRows < D::kTogether ? kRows : D::kTogether;
  add_rows<D, kNow>(w, scale, r, sum);
  if constexpr (kRows > kNow) add_block<D, kRows - kNow>(w, scale, r + kNow, sum + kNow * kWide);
}

constexpr int kTileRows = kRegisters == 32 ? 6 : 8;
constexpr auto kStep = static_cast<std::int64_t>(kLanes);

template <class D, int kRows, int kPanels>
void direct_rows(const Panels& panels, const Record* records, float* sums, std::int64_t stride) {
  for (int v = 0; v < kVectors; ++v, sums += kStep) {
    VF sum[kPanels][kRows];
    load_sums(sums, stride, sum);
    const Record* r = records;
    for (BlockCursor<kPanels> at(panels); !at.done(); at.next(), r += kRows) {
      HWY_UNROLL(4)
      for (int j = 0; j < kPanels; ++j) {
        VU8 w[1][4];
        VF scale[1];
        load_block(at.codes(j), at.scales(j), v, w[0], scale[0]);
        add_block<D, kRows>(w, scale, r, sum[j]);
      }
    }
    store_sums(sum, sums, stride);
  }
}

// A tile has kTilePanels panels, kWide vectors at a time, and up to kTileRows rows of x.
constexpr int kWide = kRegisters == 32 ? 2 : 1;
constexpr int kTilePanels = kWide > kVectors ? kWide / kVectors : 1;
constexpr int kStrips = kTilePanels * kVectors / kWide;

struct TileBlock {
  VU8 w[kWide][4];
  VF scale[kWide];
};

void decode(const std::uint8_t* panel, std::int64_t panel_bytes, std::int64_t blocks,
            std::int64_t blocks_left, std::byte* decoded) {
  auto* out = reinterpret_cast<TileBlock*>(decoded);
  for (int s = 0; s < kStrips; ++s)
    for (std::int64_t b = 0; b < blocks; ++b, ++out) {
      const PanelBlock at = panel_block(b, blocks_left);
      HWY_UNROLL(2)
      for (int j = 0; j < kWide; ++j) {
        const int v = s * kWide + j;
        VU8 w[4];
        const std::uint8_t* p = panel + v / kVectors * panel_bytes;
        load_block(p + at.codes, p + at.scales, v % kVectors, w, out->scale[j]);
        HWY_UNROLL(4)
        for (int i = 0; i < 4; ++i) out->w[j][i] = w[i];
      }
    }
}

template <class D, int kRows>
void tile_rows(const std::byte* decoded, std::int64_t blocks, const Record* records, float* sums,
               std::int64_t stride) {
  const auto* block = reinterpret_cast<const TileBlock*>(decoded);
  for (int s = 0; s < kStrips; ++s, sums += kWide * kStep) {
    VF sum[kRows * kWide];
    HWY_UNROLL(8)
    for (int t = 0; t < kRows; ++t) {
      HWY_UNROLL(2)
      for (int j = 0; j < kWide; ++j)
        sum[t * kWide + j] = hn::LoadU(F32(), sums + t * stride + j * kStep);
    }
    const Record* r = records;
    for (std::int64_t b = 0; b < blocks; ++b, ++block, r += kRows)
      add_block<D, kRows>(block->w, block->scale, r, sum);
    HWY_UNROLL(8)
    for (int t = 0; t < kRows; ++t) {
      HWY_UNROLL(2)
      for (int j = 0; j < kWide; ++j)
        hn::StoreU(sum[t * kWide + j], F32(), sums + t * stride + j * kStep);
    }
  }
}

constexpr int kDirectRows = 4;
/// Largest M for which the direct kernel is faster than a tile, as measured. It dequantizes the
/// weights again for every four rows.
constexpr int kMostDirectRows = HWY_TARGET <= HWY_AVX3_DL ? 24
                                : HWY_TARGET <= HWY_AVX3  ? 20
                                : HWY_TARGET <= HWY_AVX2  ? 12
                                : HWY_TARGET == HWY_SSE4  ? 16
                                                          : kDirectRows;

template <class D>
void direct(const Panels& w, const std::byte* records, int rows, float* sums, std::int64_t stride) {
  for_panels<kDirectRows>(w, rows, sums, [&](auto n, auto panels, const Panels& part, float* to) {
    direct_rows<D, decltype(n)::value, decltype(panels)::value>(
        part, reinterpret_cast<const Record*>(records), to, stride);
  });
}

template <class D>
void tile(const std::byte* decoded, std::int64_t blocks, const std::byte* records, int rows,
          float* sums, std::int64_t stride) {
  with_constant<kTileRows>(rows, [&](auto n) {
    tile_rows<D, decltype(n)::value>(decoded, blocks, reinterpret_cast<const Record*>(records),
                                     sums, stride);
  });
}

template <class D>
GemmKernels kernels() {
  return {.direct = {.records = {kDirectRows, sizeof(Record), prepare},
                     .most_rows = kMostDirectRows,
                     .run = direct<D>},
          .tile = {
              .records = {kTileRows, sizeof(Record), prepare},
              .panels = kTilePanels,
              .decoded_bytes = static_cast<std::int64_t>(sizeof(TileBlock)) * kStrips / kTilePanels,
              .decode = decode,
              .run = tile<D>}};
}

}  // namespace

void fill_w4a4(Backend& backend) {
  backend.w4a4 = with_dot([](auto d) { return kernels<decltype(d)>(); });
}
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
