// Dequantizes on the CPU, and computes the error of a quantized matrix.
#include <climits>

#include "backends/cpu/kernels.h"
#include "quantizers/encode_block.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/dequantize.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that it is compiled for each target:
#include "backends/cpu/lanes-inl.h"

#ifndef NVFP4_CPU_E4M3_VALUES
#define NVFP4_CPU_E4M3_VALUES
namespace nvfp4::cpu {
/// The values of every byte, including NaN and signs, because scales come from files.
struct E4M3Values {
  float value[256];
};
inline constexpr E4M3Values kE4M3 = [] {
  E4M3Values t{};
  for (int i = 0; i < 256; ++i) t.value[i] = E4M3{static_cast<std::uint8_t>(i)}.to_float();
  return t;
}();
}  // namespace nvfp4::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {  // the other files of this folder have functions of the same names

/// Returns the sixteen codes of eight bytes in order, one in each byte.
HWY_INLINE hn::Vec<hn::FixedTag<std::uint8_t, 16>> codes_of(const std::uint8_t* codes) {
  const hn::FixedTag<std::uint8_t, 16> d;
  const hn::FixedTag<std::uint8_t, 8> d8;
  const hn::FixedTag<std::uint16_t, 8> d16;
  const auto wide = hn::PromoteTo(d16, hn::LoadU(d8, codes));
  const auto pairs = hn::Or(wide, hn::ShiftLeft<4>(wide));  // 0xhhHl: bits 0-3 low, 8-11 high
  return hn::And(hn::BitCast(d, pairs), hn::Set(d, 0x0F));
}

#if HWY_TARGET <= HWY_AVX3
/// Returns two E4M3 values as FP32, eight lanes each.
HWY_INLINE __m512 two_scales(std::uint8_t low, std::uint8_t high) {
  return _mm512_mask_broadcastss_ps(_mm512_set1_ps(kE4M3.value[low]), 0xFF00,
                                    _mm_load_ss(&kE4M3.value[high]));
}

HWY_INLINE void store_or_stream(__m512i v, void* out, bool stream) {
  if (stream)
    _mm512_stream_si512(static_cast<__m512i*>(out), v);
  else
    _mm512_storeu_si512(out, v);
}

/// Dequantizes two blocks of 16 to BF16 or FP16. The eight magnitudes of each block are scaled and
/// rounded once; the codes then index these values. Scales and global must not be NaN.
template <class T>
HWY_INLINE void decode_two_blocks(const std::uint8_t* codes, __m512 scales, __m512 global, T* out,
                                  bool stream) {
  const __m512 magnitudes =
      _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
  const __m512 values = _mm512_mul_ps(_mm512_mul_ps(magnitudes, scales), global);
  __m512i table;
  if constexpr (std::is_same_v<T, BF16>) {
    const __m512i u = _mm512_castps_si512(values);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd);
    // The upper halves: those of block 0 twice, then those of block 1 twice.
    const __m512i upper =
        _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11,
                         9, 7, 5, 3, 1, 15, 13, 11, 9, 7, 5, 3, 1);
    table = _mm512_permutexvar_epi16(upper, rounded);
  } else {
    const __m256i half = _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    table = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_permute4x64_epi64(half, 0b01000100)),
                               _mm256_permute4x64_epi64(half, 0b11101110), 1);
  }
  const __m512i sign = _mm512_set_epi64(
      static_cast<long long>(0x8000800080008000), static_cast<long long>(0x8000800080008000), 0, 0,
      static_cast<long long>(0x8000800080008000), static_cast<long long>(0x8000800080008000), 0, 0);
  table = _mm512_xor_si512(table, sign);  // scales from files may be negative
  // A byte in each lane becomes two indices: the low nibble and the high nibble. Block 1 adds 16.
  const __m512i bytes =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m512i both = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
  const __m512i second = _mm512_set_epi64(0x0010001000100010, 0x0010001000100010,
                                          0x0010001000100010, 0x0010001000100010, 0, 0, 0, 0);
  const __m512i index =
      _mm512_or_si512(_mm512_and_si512(both, _mm512_set1_epi32(0x000F000F)), second);
  store_or_stream(_mm512_permutexvar_epi16(index, table), out, stream);
}

/// Dequantizes one block of 16 to FP32.
HWY_INLINE void decode_block(const std::uint8_t* codes, float scale, __m512 global, float* out,
                             bool stream) {
  const __m512 values =
      _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
  const __m512 table = _mm512_mul_ps(_mm512_mul_ps(values, _mm512_set1_ps(scale)), global);
  const __m512i bytes =
      _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  // Only the low 4 bits count.
  const __m512i index = _mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 28));
  store_or_stream(_mm512_castps_si512(_mm512_permutexvar_ps(index, table)), out, stream);
}

/// Dequantizes blocks [0, n) of a row. Scales and global must not be NaN.
template <class T>
HWY_INLINE void decode_blocks(const std::uint8_t* codes, const std::uint8_t* scales, float g,
                              T* out, std::int64_t n, bool stream) {
  const __m512 global = _mm512_set1_ps(g);
  std::int64_t b = 0;
  if constexpr (std::is_same_v<T, float>) {
    for (; b < n; ++b, codes += 8, out += 16)
      decode_block(codes, kE4M3.value[scales[b]], global, out, stream);
  } else {
    for (; b + 2 <= n; b += 2, codes += 16, out += 32)
      decode_two_blocks(codes, two_scales(scales[b], scales[b + 1]), global, out, stream);
    if (b < n) {
      alignas(64) T both[32];
      alignas(16) std::uint8_t padded[16] = {};
      std::memcpy(padded, codes, 8);
      decode_two_blocks(padded, two_scales(scales[b], 0), global, both, false);
      std::memcpy(out, both, 16 * sizeof(T));
    }
  }
}
#else
/// Returns magnitudes of a block from index `first` on, scaled and rounded.
template <class T>
HWY_INLINE auto rounded_magnitudes(VF scale, VF global, int first) {
  alignas(32) static constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return half_bits<T>(hn::Mul(hn::Mul(hn::Load(F32(), kMagnitudes + first), scale), global));
}

/// Dequantizes one block of 16 to BF16 or FP16. The codes index the bytes of the eight values;
/// upper bytes include the sign.
template <class T>
HWY_INLINE void decode_block(const std::uint8_t* codes, VF scale, VF global, T* out, bool stream) {
  const hn::FixedTag<std::uint8_t, 16> d;
  const hn::FixedTag<std::uint16_t, 8> d16;
  const hn::FixedTag<std::uint64_t, 2> d64;
  hn::Vec<decltype(d16)> values;
  if constexpr (kLanes == 8)
    values = rounded_magnitudes<T>(scale, global, 0);
  else
    values = hn::Combine(d16, rounded_magnitudes<T>(scale, global, 4),
                         rounded_magnitudes<T>(scale, global, 0));
  alignas(16) static constexpr std::uint8_t kSplit[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                          1, 3, 5, 7, 9, 11, 13, 15};
  alignas(16) static constexpr std::uint64_t kSigns[2] = {0, 0x8080808080808080};
  const auto split =
      hn::BitCast(d64, hn::TableLookupBytes(hn::BitCast(d, values), hn::Load(d, kSplit)));
  const auto low = hn::InterleaveLower(d64, split, split);
  const auto high = hn::Xor(hn::InterleaveUpper(d64, split, split), hn::Load(d64, kSigns));
  const auto index = codes_of(codes);
  const auto lows = hn::TableLookupBytes(hn::BitCast(d, low), index);
  const auto highs = hn::TableLookupBytes(hn::BitCast(d, high), index);
  auto* to = reinterpret_cast<std::uint16_t*>(out);
  store_or_stream(hn::BitCast(d16, hn::InterleaveLower(d, lows, highs)), d16, to, stream);
  store_or_stream(hn::BitCast(d16, hn::InterleaveUpper(d, lows, highs)), d16, to + 8, stream);
}

/// Dequantizes one block of 16 to FP32.
HWY_INLINE void decode_block(const std::uint8_t* codes, VF scale, VF global, float* out,
                             bool stream) {
#if HWY_TARGET == HWY_AVX2
  const __m256 values = _mm256_mul_ps(
      _mm256_mul_ps(_mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6), scale.raw), global.raw);
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  for (int half = 0; half < 2; ++half) {
    std::int32_t eight;
    std::memcpy(&eight, codes + 4 * half, 4);
    // Only the low 4 bits count.
    const __m256i code = _mm256_srlv_epi32(_mm256_set1_epi32(eight), shifts);
    const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(code, 28), _mm256_set1_epi32(INT_MIN));
    const __m256 value =
        _mm256_xor_ps(_mm256_permutevar8x32_ps(values, code), _mm256_castsi256_ps(sign));
    store_or_stream(VF{value}, F32(), out + 8 * half, stream);
  }
#else
  const hn::FixedTag<std::uint8_t, 16> d;
  const hn::Rebind<std::uint8_t, F32> d8;
  alignas(16) std::uint8_t unpacked[16];
  hn::Store(codes_of(codes), d, unpacked);
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < 16; i += kLanes) {
    const VF value = e2m1_decode(hn::PromoteTo(U32(), hn::Load(d8, unpacked + i)));
    store_or_stream(hn::Mul(hn::Mul(value, scale), global), F32(), out + i, stream);
  }
#endif
}

/// Dequantizes blocks [0, n) of a row. Scales and global must not be NaN.
template <class T>
HWY_INLINE void decode_blocks(const std::uint8_t* codes, const std::uint8_t* scales, float g,
                              T* out, std::int64_t n, bool stream) {
  for (std::int64_t b = 0; b < n; ++b, codes += 8, out += 16)
    decode_block(codes, set_f32(kE4M3.value[scales[b]]), set_f32(g), out, stream);
}
#endif

/// Dequantizes the common case: linear scales without NaN and blocks of 16. Returns false
/// otherwise.
template <class T>
bool decode_row_fast(const QuantizedView& q, T* out, std::int64_t v, std::int64_t b0,
                     std::int64_t b1, bool stream) {
  const QuantizedShape& s = q.shape;
  const float g = q.global_of(v);
  if (s.layout != ScaleLayout::linear || s.block != 16 || !(g - g == 0)) return false;
  const std::uint8_t* scales = q.scales + v * s.blocks();
  std::uint8_t nan = 0;
  for (std::int64_t b = b0; b < b1; ++b) nan |= (scales[b] & 0x7F) == E4M3::kNaN;
  if (nan) return false;
  stream = stream && reinterpret_cast<std::uintptr_t>(out) % 64 == 0;
  decode_blocks(q.codes + v * (s.cols / 2) + b0 * 8, scales + b0, g, out, b1 - b0, stream);
  if (stream) hwy::FlushStream();
  return true;
}

/// Dequantizes blocks [b0, b1) of row v. `out` is the position of the first one. `stream` is a hint
/// that the output is not read soon.
template <class T>
void decode_row(const QuantizedView& q, T* out, std::int64_t v, std::int64_t b0, std::int64_t b1,
                bool stream) {
  if (decode_row_fast(q, out, v, b0, b1, stream)) return;
  const QuantizedShape& s = q.shape;
  const hn::Rebind<std::uint8_t, F32> d8;
  const VF global = set_f32(q.global_of(v));
  alignas(16) std::uint8_t unpacked[16];
  visit_layout(s.layout, [&](auto layout) {
    for (std::int64_t b = b0; b < b1; ++b) {
      const VF scale =
          set_f32(kE4M3.value[q.scales[decltype(layout)::offset(v, b, s.rows, s.blocks())]]);
      for (std::int64_t k = b * s.block; k < (b + 1) * s.block; k += 16) {
        hn::Store(codes_of(q.codes + v * (s.cols / 2) + k / 2), hn::FixedTag<std::uint8_t, 16>(),
                  unpacked);
        HWY_UNROLL(4)
        for (std::size_t i = 0; i < 16; i += kLanes) {
          const VU code = hn::PromoteTo(U32(), hn::Load(d8, unpacked + i));
          const VF value = hn::Mul(hn::Mul(e2m1_decode(code), scale), global);
          store_lanes(value, out + (k - b0 * s.block) + static_cast<std::int64_t>(i));
        }
      }
    }
  });
}

/// Loads the scales of one row of blocks, columns v + lane, as FP32. There are n columns.
HWY_INLINE void column_scales(const QuantizedView& q, std::int64_t v, std::int64_t n,
                              std::int64_t b, float* scale, float* global) {
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(kLanes); ++i) {
    const std::int64_t column = v + (i < n ? i : 0);
    scale[i] = kE4M3.value[q.scales[q.shape.scale_offset(column, b)]];
    global[i] = q.global_of(column);
  }
}

/// Dequantizes blocks along columns. `out` is the position of the tile's first element.
template <class T>
void decode_columns(const QuantizedView& q, T* out, std::int64_t stride, const Tile& tile) {
  const QuantizedShape& s = q.shape;
  const auto lanes = static_cast<std::int64_t>(kLanes);
  const hn::Rebind<std::uint8_t, F32> d8;
  alignas(64) float scales[kLanes], globals[kLanes];
  alignas(64) std::uint8_t bytes[kLanes];
  alignas(64) T part[kLanes];
  for (std::int64_t b = tile.b0; b < tile.b1; ++b)
    for (std::int64_t v = tile.v0; v < tile.v1; v += lanes) {
      const std::int64_t n = HWY_MIN(lanes, tile.v1 - v);
      column_scales(q, v, n, b, scales, globals);
      const VF scale = hn::Load(F32(), scales), global = hn::Load(F32(), globals);
      for (std::int64_t k = b * s.block; k < (b + 1) * s.block; k += 2) {
        std::memcpy(bytes, q.codes + k / 2 * s.cols + v, static_cast<std::size_t>(n));
        const VU pair = hn::PromoteTo(U32(), hn::Load(d8, bytes));
        for (int half = 0; half < 2; ++half) {
          const VU code = half == 0 ? hn::And(pair, set_u32(0xF)) : hn::ShiftRight<4>(pair);
          store_lanes(hn::Mul(hn::Mul(e2m1_decode(code), scale), global), part);
          std::memcpy(out + (k + half - tile.b0 * s.block) * stride + (v - tile.v0), part,
                      static_cast<std::size_t>(n) * sizeof(T));
        }
      }
    }
}

template <class T>
void decode_dtype(const QuantizedView& q, const MatrixSpan& out, const Tile& tile) {
  T* data = static_cast<T*>(out.data);
  const std::int64_t k0 = tile.b0 * q.shape.block;
  if (q.shape.axis == BlockAxis::columns)
    return decode_columns(q, data + k0 * out.stride + tile.v0, out.stride, tile);
  const bool stream = out.size() * static_cast<std::int64_t>(sizeof(T)) > kBeyondCaches;
  for (std::int64_t v = tile.v0; v < tile.v1; ++v)
    decode_row(q, data + v * out.stride + k0, v, tile.b0, tile.b1, stream);
}

void decode(const QuantizedView& q, const MatrixSpan& out, const Tile& tile) {
  visit_dtype(out.dtype, [&](auto type) { decode_dtype<decltype(type)>(q, out, tile); });
}

/// Computes the errors of n blocks. x and y hold B rows of kLanes values; a lane is a block.
template <int B>
HWY_INLINE void store_errors(const float* x, const float* y, std::int64_t n, float* errors,
                             float* norms) {
  VF squares[4], sizes[4];
  for (int j = 0; j < 4; ++j) squares[j] = sizes[j] = hn::Zero(F32());
  for (int i = 0; i < B; ++i) {
    const VF value = hn::Load(F32(), x + static_cast<std::size_t>(i) * kLanes);
    const VF d = hn::Sub(value, hn::Load(F32(), y + static_cast<std::size_t>(i) * kLanes));
    squares[i % 4] = hn::Add(squares[i % 4], hn::Mul(d, d));
    sizes[i % 4] = hn::Add(sizes[i % 4], hn::Mul(value, value));
  }
  const VF error = hn::Add(hn::Add(squares[0], squares[1]), hn::Add(squares[2], squares[3]));
  const VF norm = hn::Add(hn::Add(sizes[0], sizes[1]), hn::Add(sizes[2], sizes[3]));
  if (n == static_cast<std::int64_t>(kLanes)) {
    hn::StoreU(error, F32(), errors);
    hn::StoreU(norm, F32(), norms);
    return;
  }
  alignas(64) float both[2][kLanes];
  hn::Store(error, F32(), both[0]);
  hn::Store(norm, F32(), both[1]);
  std::memcpy(errors, both[0], static_cast<std::size_t>(n) * sizeof(float));
  std::memcpy(norms, both[1], static_cast<std::size_t>(n) * sizeof(float));
}

/// Computes the errors of n blocks of row v from block b on.
template <class T, int B>
void row_errors(const MatrixView& x, const QuantizedView& q, std::int64_t v, std::int64_t b,
                std::int64_t n, float* errors, float* norms) {
  alignas(64) float decoded[B * kLanes], x_lanes[B * kLanes], q_lanes[B * kLanes];
  alignas(64) T part[B * kLanes];
  const T* from = static_cast<const T*>(x.data) + v * x.stride + b * B;
  if (n < static_cast<std::int64_t>(kLanes)) {
    std::memset(decoded, 0, sizeof decoded);
    std::memset(static_cast<void*>(part), 0, sizeof part);
    std::memcpy(part, from, static_cast<std::size_t>(n * B) * sizeof(T));
    from = part;
  }
  decode_row(q, decoded, v, b, b + n, false);
  load_blocks<B>(from, x_lanes);
  load_blocks<B>(decoded, q_lanes);
  store_errors<B>(x_lanes, q_lanes, n, errors, norms);
}

/// Computes the errors of n blocks of row b of blocks from column v on.
template <class T, int B>
void column_errors(const MatrixView& x, const QuantizedView& q, std::int64_t v, std::int64_t b,
                   std::int64_t n, float* errors, float* norms) {
  alignas(64) float x_lanes[B * kLanes], q_lanes[B * kLanes];
  alignas(64) T part[kLanes];
  std::memset(q_lanes, 0, sizeof q_lanes);
  std::memset(static_cast<void*>(part), 0, sizeof part);
  decode_columns(q, q_lanes, static_cast<std::int64_t>(kLanes), {v, v + n, b, b + 1});
  for (int i = 0; i < B; ++i) {
    std::memcpy(part, static_cast<const T*>(x.data) + (b * B + i) * x.stride + v,
                static_cast<std::size_t>(n) * sizeof(T));
    hn::Store(load_lanes(part), F32(), x_lanes + static_cast<std::size_t>(i) * kLanes);
  }
  store_errors<B>(x_lanes, q_lanes, n, errors, norms);
}

template <class T, int B>
void errors_of(const MatrixView& x, const QuantizedView& q, std::int64_t first, std::int64_t count,
               float* errors, float* norms) {
  const bool rows = q.shape.axis == BlockAxis::rows;
  const std::int64_t across = rows ? q.shape.blocks() : q.shape.cols;
  std::int64_t down = first / across, along = first % across;
  while (count > 0) {
    const std::int64_t n =
        HWY_MIN(HWY_MIN(static_cast<std::int64_t>(kLanes), across - along), count);
    if (rows)
      row_errors<T, B>(x, q, down, along, n, errors, norms);
    else
      column_errors<T, B>(x, q, along, down, n, errors, norms);
    errors += n;
    norms += n;
    count -= n;
    along += n;
    if (along == across) ++down, along = 0;
  }
}

void block_errors(const MatrixView& x, const QuantizedView& q, std::int64_t first,
                  std::int64_t count, float* errors, float* norms) {
  visit_dtype(x.dtype, [&](auto type) {
    using T = decltype(type);
    q.shape.block == 16 ? errors_of<T, 16>(x, q, first, count, errors, norms)
                        : errors_of<T, 32>(x, q, first, count, errors, norms);
  });
}

}  // namespace

void fill_decode(Backend& backend) {
  backend.decode = decode;
  backend.block_errors = block_errors;
}
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
