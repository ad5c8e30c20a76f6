// FP64 GEMM on the CPU, for the factors of Gram matrices.
#include <algorithm>
#include <vector>

#include "backends/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/subtract_product.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that it is compiled for each target:
#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {  // the other files of this folder have functions of the same names

using F64 = hn::ScalableTag<double>;
using VD = hn::Vec<F64>;
constexpr auto kStep = static_cast<std::int64_t>(hn::MaxLanes(F64()));
/// Size of the register tile: rows, and vectors of each row.
constexpr int kTall = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
constexpr int kWide = 2;
constexpr std::int64_t kColumns = kWide * kStep;
constexpr auto kSide = static_cast<std::int64_t>(ProductF64::kSide);
static_assert(16 % kColumns == 0, "every number of columns is a multiple of it");

/// Computes rows [0, kRows) of c. `a` has dense rows of kSide, `b` rows of kColumns.
template <int kRows>
HWY_INLINE void subtract_rows(double* HWY_RESTRICT c, std::int64_t stride,
                              const double* HWY_RESTRICT a, const double* HWY_RESTRICT b,
                              std::int64_t depth) {
  const F64 d;
  VD sum[kRows][kWide];
  for (int i = 0; i < kRows; ++i)
    for (int w = 0; w < kWide; ++w) sum[i][w] = hn::LoadU(d, c + i * stride + w * kStep);
  for (std::int64_t k = 0; k < depth; ++k) {
    VD right[kWide];
    for (int w = 0; w < kWide; ++w) right[w] = hn::LoadU(d, b + k * kColumns + w * kStep);
    HWY_UNROLL(12)
    for (int i = 0; i < kRows; ++i) {
      const VD left = hn::Set(d, a[i * kSide + k]);
      for (int w = 0; w < kWide; ++w) sum[i][w] = hn::NegMulAdd(left, right[w], sum[i][w]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int w = 0; w < kWide; ++w) hn::StoreU(sum[i][w], d, c + i * stride + w * kStep);
}

/// Computes rows from `i` on, kRows at a time, while enough rows remain.
template <int kRows>
HWY_INLINE void subtract_from(const ProductF64& p, const double* a, const double* b, std::int64_t j,
                              std::int64_t& i) {
  for (; i + kRows <= p.rows; i += kRows)
    subtract_rows<kRows>(p.c + i * p.c_stride + j, p.c_stride, a + i * kSide, b, p.depth);
}

void subtract_product(const ProductF64& p) {
  // Operands are copied to contiguous memory, so that rows a power of two apart do not evict each
  // other.
  thread_local std::vector<double> a(static_cast<std::size_t>(kSide * kSide)),
      b(static_cast<std::size_t>(kSide * kColumns));
  for (std::int64_t i = 0; i < p.rows; ++i)
    std::copy_n(p.a + i * p.a_stride, p.depth, a.data() + i * kSide);
  for (std::int64_t j = 0; j < p.columns; j += kColumns) {
    for (std::int64_t k = 0; k < p.depth; ++k)
      std::copy_n(p.b + k * p.b_stride + j, kColumns, b.data() + k * kColumns);
    std::int64_t i = 0;
    subtract_from<kTall>(p, a.data(), b.data(), j, i);
    subtract_from<4>(p, a.data(), b.data(), j, i);
    subtract_from<1>(p, a.data(), b.data(), j, i);
  }
}

}  // namespace

void fill_subtract_product(Backend& backend) { backend.subtract_product = subtract_product; }
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
