// Computes Gram matrices of the blocks of columns on the CPU.
#include "backends/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gram.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that it is compiled for each target:
#include "backends/cpu/row-math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {  // the other files of this folder have functions of the same names

constexpr auto kStep = static_cast<std::int64_t>(kLanes);
/// Number of rows that are converted at a time; a multiple of kGramSums.
constexpr std::int64_t kChunk = 128;
/// Rows of the result in registers.
constexpr int kTall = 4;

/// Adds rows first, first + kGramSums … of the chunk to sum `first`: entries [a, a + kTall) × B.
template <int B>
HWY_INLINE void add_products(const float* HWY_RESTRICT x, std::int64_t rows, std::int64_t first,
                             int a, float* HWY_RESTRICT sums) {
  for (std::size_t c = 0; c < B; c += kLanes) {
    VF sum[kTall];
    for (int i = 0; i < kTall; ++i)
      sum[i] = hn::Load(F32(), sums + static_cast<std::size_t>((a + i) * B) + c);
    for (std::int64_t t = first; t < rows; t += kGramSums) {
      const float* row = x + t * B;
      const VF right = hn::Load(F32(), row + c);
      HWY_UNROLL(4)
      for (int i = 0; i < kTall; ++i) sum[i] = hn::Add(sum[i], hn::Mul(set_f32(row[a + i]), right));
    }
    for (int i = 0; i < kTall; ++i)
      hn::Store(sum[i], F32(), sums + static_cast<std::size_t>((a + i) * B) + c);
  }
}

template <class T, int B>
void gram_block(const MatrixView& x, const MatrixSpan& out, bool accumulate, std::int64_t block) {
  alignas(64) float sums[kGramSums][B * B] = {};
  alignas(64) float chunk[kChunk * B];
  for (std::int64_t t0 = 0; t0 < x.rows; t0 += kChunk) {
    const std::int64_t rows = HWY_MIN(kChunk, x.rows - t0);
    for (std::int64_t t = 0; t < rows; ++t) {
      const T* from = static_cast<const T*>(x.data) + (t0 + t) * x.stride + block * B;
      for (std::int64_t c = 0; c < B; c += kStep)
        hn::Store(load_lanes(from + c), F32(), chunk + t * B + c);
    }
    for (int s = 0; s < kGramSums; ++s)
      for (int a = 0; a < B; a += kTall) add_products<B>(chunk, rows, s, a, sums[s]);
  }
  for (std::int64_t a = 0; a < B; ++a)
    for (std::int64_t c = 0; c < B; c += kStep) {
      VF s[kGramSums];
      for (int i = 0; i < kGramSums; ++i) s[i] = hn::Load(F32(), sums[i] + a * B + c);
      for (int width = 1; width < kGramSums; width *= 2)  // a balanced tree
        for (int i = 0; i < kGramSums; i += 2 * width) s[i] = hn::Add(s[i], s[i + width]);
      float* to = static_cast<float*>(out.data) + (block * B + a) * out.stride + c;
      hn::StoreU(accumulate ? hn::Add(hn::LoadU(F32(), to), s[0]) : s[0], F32(), to);
    }
}

template <class T>
void gram_dtype(const MatrixView& x, const MatrixSpan& out, bool accumulate, std::int64_t b0,
                std::int64_t b1) {
  for (std::int64_t b = b0; b < b1; ++b)
    out.cols == 16 ? gram_block<T, 16>(x, out, accumulate, b)
                   : gram_block<T, 32>(x, out, accumulate, b);
}

void gram(const MatrixView& x, const MatrixSpan& out, bool accumulate, std::int64_t b0,
          std::int64_t b1) {
  visit_dtype(x.dtype, [&](auto type) { gram_dtype<decltype(type)>(x, out, accumulate, b0, b1); });
}

}  // namespace

void fill_gram(Backend& backend) { backend.gram = gram; }
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
