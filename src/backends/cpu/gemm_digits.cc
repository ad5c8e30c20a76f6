// W4A16 for few rows of x in BF16 or FP16. If a block's elements are small integers times a power
// of two, its dot products are exact integer sums. They cost two or three dot products of W4A4.
#include "backends/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm_digits.cc"
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

constexpr int kDigits = 3;
/// Integers are below 2^kBits. Sixteen of them times 12, and all partial sums, stay below 2^31.
/// Their digits are signed bytes.
constexpr int kBits = 22;
/// Lower bound of the biased FP32 exponent of a block's largest element, so that products with its
/// scale are normal.
constexpr std::int32_t kLeastExponent = 64;

/// The integers of a row and block of x.
enum class Form : std::int32_t {
  two,    ///< the lowest digits are zero
  three,  ///< all digits are used
  wide,   ///< not integers: `digits` holds the elements of x unchanged
};

/// A row and block of x. `digits` are to base 256, the lowest first. Each half block has its even
/// elements, then the odd ones.
struct Record {
  Word digits[kDigits][4];
  std::int32_t start;  ///< start of the sums of the lowest digits that are used
  float scale;         ///< scale of the sums for doubled codes, · 2^kScaleExponent
  Form form;
  std::int32_t unused;
};
static_assert(sizeof(Record) == 64);

/// Returns the biased FP32 exponent of the largest magnitude.
template <class T>
HWY_INLINE std::int32_t exponent_of(const T* x) {
  VI largest = hn::Zero(I32());
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kBlock; i += kLanes)
    largest = hn::Max(largest, signed_bits(hn::And(bits(load_lanes(x + i)), set_u32(0x7FFFFFFF))));
  return hn::GetLane(hn::MaxOfLanes(I32(), largest)) >> 23;
}

/// Computes the digits of x · factor and the sum of the integers. Returns false if they are not
/// integers, such as NaN and infinity.
template <class T>
HWY_INLINE bool split(const T* x, float factor, Word (*digits)[4], std::int32_t* sum) {
  alignas(16) std::uint8_t bytes[kDigits][kBlock];
  const hn::Rebind<std::uint8_t, F32> d8;
  VI total = hn::Zero(I32());
  bool fits = true;
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kBlock; i += kLanes) {
    const VF scaled = hn::Mul(load_lanes(x + i), set_f32(factor));
    VI left = hn::ConvertTo(I32(), scaled);
    fits &= hn::AllTrue(F32(), hn::Eq(hn::ConvertTo(F32(), left), scaled));
    total = hn::Add(total, left);
    for (auto& digit : bytes) {
      // TruncateTo of Highway 1.0.3 is wrong for AVX3_DL.
      hn::StoreU(hn::DemoteTo(d8, hn::And(left, hn::Set(I32(), 0xFF))), d8, digit + i);
      // The digit is signed: a carry goes to the next one.
      left = hn::ShiftRight<8>(hn::Add(left, hn::Set(I32(), 128)));
    }
  }
  *sum = hn::GetLane(hn::SumOfLanes(I32(), total));
  alignas(16) static constexpr std::uint8_t kOrder[kBlock] = {0, 2,  4,  6,  1, 3,  5,  7,
                                                              8, 10, 12, 14, 9, 11, 13, 15};
  const hn::FixedTag<std::uint8_t, kBlock> d16;
  for (int i = 0; i < kDigits; ++i)
    hn::StoreU(hn::TableLookupBytes(hn::Load(d16, bytes[i]), hn::Load(d16, kOrder)), d16,
               reinterpret_cast<std::uint8_t*>(digits[i]));
  return fits;
}

HWY_INLINE float power_of_two(std::int32_t biased_exponent) {
  return __builtin_bit_cast(float, biased_exponent << 23);
}

template <class T>
void prepare_block(const T* x, Record* record) {
  const std::int32_t exponent = HWY_MAX(exponent_of(x), kLeastExponent);
  std::int32_t sum = 0;
  if (!split(x, power_of_two(2 * 127 + kBits - 1 - exponent), record->digits, &sum)) {
    std::memcpy(record->digits, x, kBlock * sizeof(T));
    record->form = Form::wide;
    return;
  }
  constexpr Word kZeros[4] = {};
  const bool two = std::memcmp(record->digits[0], kZeros, sizeof kZeros) == 0;
  record->start = -kCodeBias * (two ? sum / 256 : sum);
  record->scale = power_of_two(exponent - kBits + kScaleExponent + (two ? 8 : 0));
  record->form = two ? Form::two : Form::three;
}

template <class T>
void prepare(const Activations& x, std::int64_t row, int rows, std::byte* records) {
  auto* record = reinterpret_cast<Record*>(records);
  for (std::int64_t b = 0; b < x.blocks; ++b)
    for (int t = 0; t < rows; ++t, ++record)
      prepare_block(static_cast<const T*>(x.data) + (row + t) * x.stride + b * kBlock, record);
}

/// Adds the block's products with unchanged elements, by FMA.
template <class T>
HWY_NOINLINE VF add_wide(const std::uint8_t* codes, const Record& r, VF scale, VF sum) {
  T x[kBlock];
  std::memcpy(x, r.digits, sizeof x);
  VF part = hn::Zero(F32());
  for (int k = 0; k < kBlock; ++k) {
    const VU words = load_words(codes + k / 8 * kHalfBlock);
    const VU code = hn::And(hn::ShiftRightSame(words, 4 * (k % 8)), set_u32(15));
    part = hn::MulAdd(set_f32(x[k].to_float()), e2m1_decode(code), part);
  }
  return hn::MulAdd(part, hn::Mul(scale, set_f32(1 << kScaleExponent)), sum);
}

/// Returns the sum of the block's products with the digits from kFirst on.
template <class D, int kFirst>
HWY_INLINE VI dot_digits(const VU8 (&w)[1][4], const Record& r) {
  constexpr int kCount = kDigits - kFirst;
  VI q[kCount][1] = {{hn::Set(I32(), r.start)}};
  HWY_UNROLL(2)
  for (int i = 1; i < kCount; ++i) q[i][0] = hn::Zero(I32());
  D::dots(w, q, [&](int digit, int i) { return &r.digits[kFirst + digit][i]; });
  VI total = hn::Add(q[0][0], hn::ShiftLeft<8>(q[1][0]));
  if constexpr (kCount == 3) total = hn::Add(total, hn::ShiftLeft<16>(q[2][0]));
  return total;
}

/// Computes sum[t] += vector v of the block's rows times row t of x.
template <class T, class D, int kRows>
HWY_INLINE void add_block(const std::uint8_t* codes, const std::uint8_t* scales, int v,
                          const Record* r, VF* HWY_RESTRICT sum) {
  VU8 w[1][4];
  VF scale;
  load_block(codes, scales, v, w[0], scale);
  HWY_UNROLL(8)
  for (int t = 0; t < kRows; ++t) {
    if (HWY_UNLIKELY(r[t].form == Form::wide)) {
      sum[t] = add_wide<T>(codes + v * kCodeStep, r[t], scale, sum[t]);
      continue;
    }
    const VI total = r[t].form == Form::two ? dot_digits<D, 1>(w, r[t]) : dot_digits<D, 0>(w, r[t]);
    const VF factor = hn::Mul(scale, set_f32(r[t].scale));
    sum[t] = hn::MulAdd(hn::ConvertTo(F32(), total), factor, sum[t]);
  }
}

template <class T, class D, int kRows, int kPanels>
void direct_rows(const Panels& w, const Record* records, float* sums, std::int64_t stride) {
  for (int v = 0; v < kVectors; ++v, sums += kLanes) {
    VF sum[kPanels][kRows];
    load_sums(sums, stride, sum);
    const Record* r = records;
    for (BlockCursor<kPanels> at(w); !at.done(); at.next(), r += kRows) {
      HWY_UNROLL(4)
      for (int j = 0; j < kPanels; ++j)
        add_block<T, D, kRows>(at.codes(j), at.scales(j), v, r, sum[j]);
    }
    store_sums(sum, sums, stride);
  }
}

constexpr int kDirectRows = 8;

template <class T, class D>
void direct(const Panels& w, const std::byte* records, int rows, float* sums, std::int64_t stride) {
  for_panels<kDirectRows>(w, rows, sums, [&](auto n, auto panels, const Panels& part, float* to) {
    direct_rows<T, D, decltype(n)::value, decltype(panels)::value>(
        part, reinterpret_cast<const Record*>(records), to, stride);
  });
}

template <class T, class D>
GemmKernels::Direct kernels() {
  return {.records = {kDirectRows, sizeof(Record), prepare<T>},
          .most_rows = kDirectRows,
          .differs = true,
          .run = direct<T, D>};
}

template <class D>
void fill(Backend& backend) {
  backend.w4a16_bf16 = {.direct = kernels<BF16, D>(), .tile = backend.w4a16.tile};
  backend.w4a16_f16 = {.direct = kernels<FP16, D>(), .tile = backend.w4a16.tile};
}

}  // namespace

void fill_digits(Backend& backend) {
  with_dot([&](auto d) { fill<decltype(d)>(backend); });
}
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
