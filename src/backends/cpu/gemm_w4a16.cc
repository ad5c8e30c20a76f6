// W4A16 in FP32, for x of any type: sums of a block of x · e2m1 by FMA, then times the scale. It
// also has the last step of every GEMM.
#include "backends/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm_w4a16.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that it is compiled for each target:
#include "backends/cpu/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {

constexpr auto kStep = static_cast<std::int64_t>(kLanes);
constexpr float kScaleFactor = static_cast<float>(1 << kScaleExponent);

HWY_INLINE VF load_block_scales(const std::uint8_t* p) {
  return hn::Mul(load_scales(p), set_f32(kScaleFactor));
}

/// A row and block of x.
struct Record {
  float x[kBlock];
};

template <class T>
void prepare_dtype(const Activations& x, std::int64_t row, int rows, Record* records) {
  for (int t = 0; t < rows; ++t) {
    const T* from = static_cast<const T*>(x.data) + (row + t) * x.stride;
    for (std::int64_t b = 0; b < x.blocks; ++b) HWY_UNROLL(4)
    for (std::size_t i = 0; i < kBlock; i += kLanes)
      hn::StoreU(load_lanes(from + b * kBlock + i), F32(), records[b * rows + t].x + i);
  }
}
void prepare(const Activations& x, std::int64_t row, int rows, std::byte* records) {
  auto* out = reinterpret_cast<Record*>(records);
  if (x.dtype == DType::bf16)
    prepare_dtype<BF16>(x, row, rows, out);
  else if (x.dtype == DType::f16)
    prepare_dtype<FP16>(x, row, rows, out);
  else
    prepare_dtype<float>(x, row, rows, out);
}

/// Returns the E2M1 values of nibble i of each word.
template <int i>
HWY_INLINE VF decode_nibble(VU words) {
#if HWY_TARGET <= HWY_AVX3
  alignas(64) static constexpr float kValues[16] = {0,    0.5f,  1,  1.5f,  2,  3,  4,  6,
                                                    -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  return VF{_mm512_permutexvar_ps(_mm512_srli_epi32(words.raw, 4 * i), _mm512_load_ps(kValues))};
#elif HWY_TARGET == HWY_AVX2
  alignas(32) static constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const __m256 magnitude =
      _mm256_permutevar8x32_ps(_mm256_load_ps(kValues), _mm256_srli_epi32(words.raw, 4 * i));
  const VU sign = hn::And(hn::ShiftLeft<28 - 4 * i>(words), set_u32(0x80000000));
  return floats(hn::Or(bits(VF{magnitude}), sign));
#else
  return e2m1_decode(hn::And(hn::ShiftRight<4 * i>(words), set_u32(15)));
#endif
}

/// Calls f(k, values of element k) for the eight elements of a half block, from k on.
template <int i = 0, class F>
HWY_INLINE void for_each_nibble(VU words, int k, F&& f) {
  f(k + i, decode_nibble<i>(words));
  if constexpr (i < 7) for_each_nibble<i + 1>(words, k, f);
}

/// Rows of the direct kernel. It sums a block without the scale, which is applied once to each sum.
constexpr int kDirectRows = 4;

template <int kRows>
HWY_INLINE void add_block(const std::uint8_t* codes, const std::uint8_t* scales, const Record* r,
                          VF* HWY_RESTRICT sum) {
  VF part[kRows];
  const auto add = [&](int k, VF w) HWY_ATTR {
    HWY_UNROLL(8)
    for (int t = 0; t < kRows; ++t) {
      const VF x = set_f32(r[t].x[k]);
      part[t] = k == 0 ? hn::Mul(x, w) : hn::MulAdd(x, w, part[t]);
    }
  };
  for_each_nibble(load_words(codes), 0, add);
  for_each_nibble(load_words(codes + kHalfBlock), 8, add);
  const VF scale = load_block_scales(scales);
  HWY_UNROLL(8)
  for (int t = 0; t < kRows; ++t) sum[t] = hn::MulAdd(part[t], scale, sum[t]);
}

template <int kRows, int kPanels>
void direct_rows(const Panels& w, const Record* records, float* sums, std::int64_t stride) {
  for (int v = 0; v < kVectors; ++v, sums += kStep) {
    VF sum[kPanels][kRows];
    load_sums(sums, stride, sum);
    const Record* r = records;
    for (BlockCursor<kPanels> at(w); !at.done(); at.next(), r += kRows) {
      HWY_UNROLL(4)
      for (int j = 0; j < kPanels; ++j)
        add_block<kRows>(at.codes(j) + v * kCodeStep, at.scales(j) + v * kScaleStep, r, sum[j]);
    }
    store_sums(sum, sums, stride);
  }
}

// A tile has kTilePanels panels, kWide vectors at a time, and up to kTileRows rows of x. Its sums
// fill the registers.
constexpr int kWide = 2;
constexpr int kTileRows = kRegisters == 32 ? 12 : 6;
constexpr int kTilePanels = kWide > kVectors ? kWide / kVectors : 1;
constexpr int kStrips = kTilePanels * kVectors / kWide;

/// Multiplies two elements of each of kRows rows of x by those of kWide vectors of weights.
template <int kRows>
HWY_INLINE void add_columns(const VF (*w)[kWide], const Record* r, int k, VF (*sum)[kWide]) {
  HWY_UNROLL(2)
  for (int i = 0; i < 2; ++i) {
    HWY_UNROLL(12)
    for (int t = 0; t < kRows; ++t) {
      const VF x = set_f32(r[t].x[k + i]);
      HWY_UNROLL(2)
      for (int j = 0; j < kWide; ++j) sum[t][j] = hn::MulAdd(x, w[i][j], sum[t][j]);
    }
  }
}

struct TileBlock {
  VF w[kBlock][kWide];  ///< e2m1 · scale
};

void decode(const std::uint8_t* panel, std::int64_t panel_bytes, std::int64_t blocks,
            std::int64_t blocks_left, std::byte* decoded) {
  auto* out = reinterpret_cast<TileBlock*>(decoded);
  for (int s = 0; s < kStrips; ++s)
    for (std::int64_t b = 0; b < blocks; ++b, ++out) {
      const PanelBlock at = panel_block(b, blocks_left);
      for (int j = 0; j < kWide; ++j) {
        const int v = s * kWide + j;
        const std::uint8_t* p = panel + v / kVectors * panel_bytes;
        const std::uint8_t* codes = p + at.codes + v % kVectors * kCodeStep;
        const VF scale = load_block_scales(p + at.scales + v % kVectors * kScaleStep);
        const auto store = [&](int k, VF w) HWY_ATTR { out->w[k][j] = hn::Mul(w, scale); };
        for_each_nibble(load_words(codes), 0, store);
        for_each_nibble(load_words(codes + kHalfBlock), 8, store);
      }
    }
}

template <int kRows>
void tile_rows(const std::byte* decoded, std::int64_t blocks, const Record* records, float* sums,
               std::int64_t stride) {
  const auto* block = reinterpret_cast<const TileBlock*>(decoded);
  for (int s = 0; s < kStrips; ++s, sums += kWide * kStep) {
    VF sum[kRows][kWide];
    HWY_UNROLL(12)
    for (int t = 0; t < kRows; ++t) {
      HWY_UNROLL(2)
      for (int j = 0; j < kWide; ++j) sum[t][j] = hn::LoadU(F32(), sums + t * stride + j * kStep);
    }
    const Record* r = records;
    for (std::int64_t b = 0; b < blocks; ++b, ++block, r += kRows) {
      HWY_UNROLL(1)
      for (int k = 0; k < kBlock; k += 2) add_columns<kRows>(block->w + k, r, k, sum);
    }
    HWY_UNROLL(12)
    for (int t = 0; t < kRows; ++t) {
      HWY_UNROLL(2)
      for (int j = 0; j < kWide; ++j) hn::StoreU(sum[t][j], F32(), sums + t * stride + j * kStep);
    }
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

/// Finishes one row of the output.
template <class T>
void finish_row(const GemmOutput& output, const float* sums, std::int64_t m, std::int64_t n0,
                std::int64_t cols) {
  T* out = static_cast<T*>(output.out.data) + m * output.out.stride + n0;
  const VF alpha = set_f32(output.alpha);
  const float* global = output.w_global + (output.w_global_per_row ? n0 : 0);
  alignas(64) float padded[kLanes] = {};
  const auto load = [&](const float* p, std::int64_t j) HWY_ATTR {
    if (j + kStep <= cols) return hn::LoadU(F32(), p + j);
    std::memcpy(padded, p + j, static_cast<std::size_t>(cols - j) * sizeof(float));
    return hn::Load(F32(), padded);
  };
  for (std::int64_t j = 0; j < cols; j += kStep) {
    VF factor = output.w_global_per_row ? load(global, j) : set_f32(*global);
    if (output.x_global != nullptr)
      factor = hn::Mul(set_f32(output.x_global[output.x_global_per_row ? m : 0]), factor);
    VF y = hn::Mul(load(sums, j), hn::Mul(alpha, factor));
    if (output.bias != nullptr) y = hn::Add(y, load(output.bias + n0, j));
    if (j + kStep <= cols) {
      store_lanes(y, out + j);
    } else {
      T last[kLanes];
      store_lanes(y, last);
      std::memcpy(out + j, last, static_cast<std::size_t>(cols - j) * sizeof(T));
    }
  }
}

void finish(const GemmOutput& output, const float* sums, std::int64_t stride,
            const GemmPart& part) {
  for (std::int64_t t = 0; t < part.rows; ++t) {
    const float* row = sums + t * stride;
    const std::int64_t m = part.m0 + t;
    if (output.out.dtype == DType::bf16)
      finish_row<BF16>(output, row, m, part.n0, part.cols);
    else if (output.out.dtype == DType::f16)
      finish_row<FP16>(output, row, m, part.n0, part.cols);
    else
      finish_row<float>(output, row, m, part.n0, part.cols);
  }
}

}  // namespace

void fill_w4a16(Backend& backend) {
  backend.w4a16 = {.direct = {.records = {kDirectRows, sizeof(Record), prepare},
                              .most_rows = kDirectRows,
                              .differs = true,
                              .run = direct},
                   .tile = {.records = {kTileRows, sizeof(Record), prepare},
                            .panels = kTilePanels,
                            .decoded_bytes = static_cast<std::int64_t>(sizeof(TileBlock)) *
                                             kStrips / kTilePanels,
                            .decode = decode,
                            .run = tile}};
  backend.finish_gemm = finish;
}
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
