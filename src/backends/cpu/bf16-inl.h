// Shared by the kernels that multiply BF16: x in pairs, E2M1 in BF16.
#if defined(NVFP4_BF16_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NVFP4_BF16_INL_H
#undef NVFP4_BF16_INL_H
#else
#define NVFP4_BF16_INL_H
#endif

#include "backends/cpu/gemm-inl.h"

#if HWY_TARGET <= HWY_AVX3_DL
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
#else
HWY_BEFORE_NAMESPACE();
#endif
namespace nvfp4::cpu::HWY_NAMESPACE {
#if HWY_TARGET <= HWY_AVX3_DL
namespace {

/// A row and block of x. Each half block has the pairs (0, 4), (1, 5), (2, 6), (3, 7): the nibbles
/// of a 32-bit word have this order in its two halves.
struct Record {
  std::uint32_t pairs[kBlock / 2];
};

/// The position of the records of block b: the first row's, and the step between rows. A row's
/// records of `kTogether` blocks are adjacent. Remaining blocks at the end stand alone.
struct RecordPlace {
  std::int64_t first, step;
};
template <int kTogether>
RecordPlace record_place(std::int64_t b, std::int64_t blocks, int rows) {
  if (kTogether == 1 || b >= blocks / kTogether * kTogether) return {b * rows, 1};
  return {b / kTogether * kTogether * rows + b % kTogether, kTogether};
}

template <int kTogether>
void prepare(const Activations& x, std::int64_t row, int rows, std::byte* records) {
  auto* out = reinterpret_cast<Record*>(records);
  for (int t = 0; t < rows; ++t) {
    const auto* from = static_cast<const std::uint16_t*>(x.data) + (row + t) * x.stride;
    for (std::int64_t b = 0; b < x.blocks; ++b) {
      const RecordPlace place = record_place<kTogether>(b, x.blocks, rows);
      Record& to = out[place.first + t * place.step];
      for (int j = 0; j < 2; ++j) {
        const __m128i half =
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + b * kBlock + 8 * j));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to.pairs + 4 * j),
                         _mm_unpacklo_epi16(half, _mm_srli_si128(half, 8)));
      }
    }
  }
}

/// Returns E2M1 values in BF16. The table has 32 entries, so the bit above the nibble does not
/// matter.
HWY_INLINE __m512i value_table() {
  alignas(64) static constexpr std::uint16_t kValues[32] = {
      0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0, 0x8000, 0xBF00, 0xBF80,
      0xBFC0, 0xC000, 0xC040, 0xC080, 0xC0C0, 0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040,
      0x4080, 0x40C0, 0x8000, 0xBF00, 0xBF80, 0xBFC0, 0xC000, 0xC040, 0xC080, 0xC0C0};
  return _mm512_load_si512(kValues);
}

/// Returns pair i of a half block of 16 rows.
template <int i>
HWY_INLINE __m512i decode_pair(__m512i words, __m512i table) {
  return _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4 * i), table);
}

HWY_INLINE __m512 load_block_scales(const std::uint8_t* p) {
  return _mm512_mul_ps(load_scales(p).raw, _mm512_set1_ps(1 << kScaleExponent));
}

constexpr int kWide = 2;

struct TileBlock {
  __m512i w[kBlock / 2][kWide];  ///< pairs of e2m1 · scale
};

/// Multiplies a pair by its scale. The products have at most six significant bits, so the lower
/// halves of their FP32 are zero.
HWY_INLINE __m512i scale_pair(__m512i pair, __m512 scale) {
  const __m512 low = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
  const __m512 high =
      _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
  return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(_mm512_mul_ps(low, scale)), 16),
                         _mm512_castps_si512(_mm512_mul_ps(high, scale)));
}

template <int i = 0>
HWY_INLINE void decode_half(__m512i words, __m512i table, __m512 scale, int half, int j,
                            TileBlock* out) {
  out->w[4 * half + i][j] = scale_pair(decode_pair<i>(words, table), scale);
  if constexpr (i < 3) decode_half<i + 1>(words, table, scale, half, j, out);
}

void decode(const std::uint8_t* panel, std::int64_t panel_bytes, std::int64_t blocks,
            std::int64_t blocks_left, std::byte* decoded) {
  const __m512i table = value_table();
  auto* out = reinterpret_cast<TileBlock*>(decoded);
  for (std::int64_t b = 0; b < blocks; ++b, ++out) {
    const PanelBlock at = panel_block(b, blocks_left);
    for (int j = 0; j < kWide; ++j) {
      const std::uint8_t* p = panel + j * panel_bytes;
      const __m512 scale = load_block_scales(p + at.scales);
      decode_half(_mm512_loadu_si512(p + at.codes), table, scale, 0, j, out);
      decode_half(_mm512_loadu_si512(p + at.codes + kHalfBlock), table, scale, 1, j, out);
    }
  }
}

}  // namespace
#endif  // HWY_AVX3_DL
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // NVFP4_BF16_INL_H
