// W4A16 for x in BF16 on CPUs that multiply BF16. Weights including their scales are exact in BF16.
#include "backends/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm_bf16.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that it is compiled for each target:
#include "backends/cpu/bf16-inl.h"

#if HWY_TARGET <= HWY_AVX3_DL
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
#else
HWY_BEFORE_NAMESPACE();
#endif
namespace nvfp4::cpu::HWY_NAMESPACE {
#if HWY_TARGET <= HWY_AVX3_DL
namespace {

constexpr int kTileRows = 12;

/// Returns sum + the two products of each pair.
HWY_INLINE __m512 dot2(__m512 sum, __m512i w, const std::uint32_t& pair) {
#if HWY_COMPILER_CLANG
  // clang 16 crashes on a broadcast that is cast to BF16.
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(pair));
  return sum;
#else
  return _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, w),
                          __builtin_bit_cast(__m512bh, _mm512_set1_epi32(static_cast<int>(pair))));
#endif
}

/// Rows of the direct kernel. It sums a block without the scale, which is applied once to each sum.
constexpr int kDirectRows = 4, kMostDirectRows = 24;  // kMostDirectRows as in gemm_w4a4.cc

template <int kRows, int i = 0>
HWY_INLINE void add_half(__m512i words, __m512i table, const Record* r, int j, __m512* part) {
  const __m512i w = decode_pair<i>(words, table);
  HWY_UNROLL(4)
  for (int t = 0; t < kRows; ++t) part[t] = dot2(part[t], w, r[t].pairs[4 * j + i]);
  if constexpr (i < 3) add_half<kRows, i + 1>(words, table, r, j, part);
}

template <int kRows>
HWY_INLINE void add_block(const std::uint8_t* codes, const std::uint8_t* scales, __m512i table,
                          const Record* r, VF* HWY_RESTRICT sum) {
  __m512 part[kRows];
  HWY_UNROLL(4)
  for (int t = 0; t < kRows; ++t) part[t] = _mm512_setzero_ps();
  add_half<kRows>(_mm512_loadu_si512(codes), table, r, 0, part);
  add_half<kRows>(_mm512_loadu_si512(codes + kHalfBlock), table, r, 1, part);
  const __m512 scale = load_block_scales(scales);
  HWY_UNROLL(4)
  for (int t = 0; t < kRows; ++t) sum[t].raw = _mm512_fmadd_ps(part[t], scale, sum[t].raw);
}

template <int kRows, int kPanels>
void direct_rows(const Panels& w, const Record* r, float* sums, std::int64_t stride) {
  const __m512i table = value_table();
  VF sum[kPanels][kRows];
  load_sums(sums, stride, sum);
  for (BlockCursor<kPanels> at(w); !at.done(); at.next(), r += kRows) {
    HWY_UNROLL(4)
    for (int j = 0; j < kPanels; ++j) add_block<kRows>(at.codes(j), at.scales(j), table, r, sum[j]);
  }
  store_sums(sum, sums, stride);
}

template <int kRows>
void tile_rows(const std::byte* decoded, std::int64_t blocks, const Record* r, float* sums,
               std::int64_t stride) {
  const auto* block = reinterpret_cast<const TileBlock*>(decoded);
  __m512 sum[kRows][kWide];
  HWY_UNROLL(12)
  for (int t = 0; t < kRows; ++t) {
    sum[t][0] = _mm512_loadu_ps(sums + t * stride);
    sum[t][1] = _mm512_loadu_ps(sums + t * stride + 16);
  }
  for (std::int64_t b = 0; b < blocks; ++b, ++block, r += kRows) {
    HWY_UNROLL(1)
    for (int i = 0; i < kBlock / 2; ++i) {
      const __m512i w0 = block->w[i][0], w1 = block->w[i][1];
      HWY_UNROLL(12)
      for (int t = 0; t < kRows; ++t) {
        sum[t][0] = dot2(sum[t][0], w0, r[t].pairs[i]);
        sum[t][1] = dot2(sum[t][1], w1, r[t].pairs[i]);
      }
    }
  }
  HWY_UNROLL(12)
  for (int t = 0; t < kRows; ++t) {
    _mm512_storeu_ps(sums + t * stride, sum[t][0]);
    _mm512_storeu_ps(sums + t * stride + 16, sum[t][1]);
  }
}

void direct(const Panels& w, const std::byte* records, int rows, float* sums, std::int64_t stride) {
  for_panels<kDirectRows>(w, rows, sums, [&](auto n, auto panels, const Panels& part, float* to) {
    direct_rows<decltype(n)::value, decltype(panels)::value>(
        part, reinterpret_cast<const Record*>(records), to, stride);
  });
}

void tile(const std::byte* decoded, std::int64_t blocks, const std::byte* records, int rows,
          float* sums, std::int64_t stride) {
  with_constant<kTileRows>(rows, [&](auto n) {
    tile_rows<decltype(n)::value>(decoded, blocks, reinterpret_cast<const Record*>(records), sums,
                                  stride);
  });
}

}  // namespace

bool fill_bf16_here(Backend& backend) {
  if (!__builtin_cpu_supports("avx512bf16")) return false;
  backend.w4a16_bf16 = {
      .direct = {.records = {kDirectRows, sizeof(Record), prepare<1>},
                 .most_rows = kMostDirectRows,
                 .differs = true,
                 .run = direct},
      .tile = {.records = {kTileRows, sizeof(Record), prepare<1>},
               .panels = kWide,
               .decoded_bytes = static_cast<std::int64_t>(sizeof(TileBlock)) / kWide,
               .decode = decode,
               .run = tile}};
  return true;
}
#else
bool fill_bf16_here(Backend&) { return false; }
#endif  // HWY_AVX3_DL
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nvfp4::cpu {
HWY_EXPORT(fill_bf16_here);
bool fill_bf16(Backend& backend) { return HWY_DYNAMIC_DISPATCH(fill_bf16_here)(backend); }
}  // namespace nvfp4::cpu
#endif
