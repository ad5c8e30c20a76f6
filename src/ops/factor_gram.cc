#include "ops/factor_gram.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "core/require.h"
#include "nvfp4/format.h"

namespace nvfp4 {
namespace {

constexpr std::int64_t kSide = ProductF64::kSide;

using Doubles = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Strided = Eigen::OuterStride<>;
using Part = Eigen::Map<Doubles, 0, Strided>;
using Products = void (*)(const ProductF64&);

/// An array of FP64 numbers that can become FP32 without both copies in memory at once.
class Numbers {
 public:
  explicit Numbers(std::size_t size)
      : size_(size), data_(static_cast<double*>(std::calloc(size + 1, sizeof(double))), std::free) {
    if (data_ == nullptr) throw std::bad_alloc();
  }
  double* data() { return data_.get(); }
  double* begin() { return data(); }
  double* end() { return data() + size_; }
  bool empty() const { return size_ == 0; }

  std::vector<float> to_floats() {
    auto* const bytes = reinterpret_cast<std::byte*>(data());
    for (std::size_t i = 0; i < size_; ++i) {
      const auto f = static_cast<float>(data()[i]);
      std::memcpy(bytes + i * sizeof f, &f, sizeof f);
    }
    if (void* const less = std::realloc(data(), (size_ + 1) * sizeof(float))) {
      (void)data_.release();
      data_.reset(static_cast<double*>(less));
    }
    std::vector<float> floats(size_);
    std::memcpy(floats.data(), data(), size_ * sizeof(float));
    *this = Numbers(0);
    return floats;
  }

 private:
  std::size_t size_;
  std::unique_ptr<double, void (*)(void*)> data_;
};

/// Replaces H by L⁻¹ with zeros above the diagonal, where H = L Lᵀ and L is lower triangular. It
/// works in blocks of kSide. All blocks except those of the diagonal are matrix products.
class InverseLower {
 public:
  InverseLower(Products products, std::int64_t size, Numbers& h)
      : products_(products), size_(size), h_(h) {}

  /// Returns false if H is not positive definite.
  bool operator()() {
    for (std::int64_t p = 0; p < size_; p += kSide)
      if (!factor_panel(p)) return false;
    for (std::int64_t p = kSide; p < size_; p += kSide) invert_rows(p);
    for (std::int64_t i = 0; i < size_; ++i) std::fill(row(i) + i + 1, row(i) + size_, 0.0);
    return std::ranges::all_of(h_, [](double v) { return std::isfinite(v); });
  }

 private:
  double* row(std::int64_t i) { return h_.data() + i * size_; }
  std::int64_t side(std::int64_t p) const { return std::min(kSide, size_ - p); }

  /// Computes columns [p, p + kSide) of L, with the inverse of its diagonal block in place.
  /// Subtracts their product from the remaining columns.
  bool factor_panel(std::int64_t p) {
    const std::int64_t n = side(p), rest = size_ - p - n;
    Part diagonal(row(p) + p, n, n, Strided(size_));
    const Eigen::LLT<Doubles, Eigen::Lower> factor(diagonal);
    if (factor.info() != Eigen::Success) return false;
    const Doubles inverse = factor.matrixL().solve(Doubles::Identity(n, n));
    diagonal = inverse;
    if (rest == 0) return true;
    const Doubles transposed = inverse.transpose();
    panel_.resize(static_cast<std::size_t>(n * rest));  // Lᵀ
    std::vector<double> block;
    for (std::int64_t i = p + n; i < size_; i += kSide) {
      const std::int64_t rows = side(i);
      block.assign(static_cast<std::size_t>(rows * n), 0.0);
      products_({block.data(), row(i) + p, transposed.data(), n, size_, n, rows, n, n});
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t k = 0; k < n; ++k) {
          const double l = -block[static_cast<std::size_t>(r * n + k)];
          row(i + r)[p + k] = l;
          panel_[static_cast<std::size_t>(k * rest + i - p - n + r)] = l;
        }
      products_({row(i) + p + n, row(i) + p, panel_.data(), size_, size_, rest, rows,
                 i + rows - p - n, n});
    }
    return true;
  }

  /// Computes rows [p, p + kSide) of L⁻¹ from the rows above.
  void invert_rows(std::int64_t p) {
    const std::int64_t n = side(p);
    std::vector<double> sum(static_cast<std::size_t>(n * p));  // -Σ L X
    for (std::int64_t k = 0; k < p; k += kSide)
      products_({sum.data(), row(p) + k, row(k), p, size_, size_, n, k + kSide, kSide});
    for (std::int64_t i = 0; i < n; ++i) std::fill(row(p + i), row(p + i) + p, 0.0);
    products_({row(p), row(p) + p, sum.data(), size_, size_, p, n, p, n});
    for (std::int64_t i = 0; i < n; ++i)
      std::transform(row(p + i), row(p + i) + p, row(p + i), std::negate());
  }

  const Products products_;
  const std::int64_t size_;
  Numbers& h_;
  std::vector<double> panel_;
};

/// A symmetric matrix, stored as its upper triangle, row by row. This halves the memory.
class Symmetric {
 public:
  Symmetric(std::int64_t size, std::vector<double> triangle)
      : size_(static_cast<std::size_t>(size)), triangle_(std::move(triangle)) {}

  std::vector<double>& triangle() { return triangle_; }
  double& diagonal(std::int32_t i) { return triangle_[begin_of(static_cast<std::size_t>(i))]; }
  double operator()(std::int32_t row, std::int32_t column) const {
    const auto [first, second] = std::minmax(row, column);
    return triangle_[begin_of(static_cast<std::size_t>(first)) +
                     static_cast<std::size_t>(second - first)];
  }

 private:
  /// Returns the index of the diagonal element of row i.
  std::size_t begin_of(std::size_t i) const { return i * (2 * size_ - i + 1) / 2; }

  std::size_t size_;
  std::vector<double> triangle_;
};

/// Does InverseLower with a library.
bool invert_by(const InvertLower& library, std::int64_t size, Numbers& h) {
  if (!library(h.data(), size)) return false;
  for (std::int64_t i = 0; i < size; ++i)
    std::fill(h.data() + i * size + i + 1, h.data() + (i + 1) * size, 0.0);
  return std::ranges::all_of(h, [](double v) { return std::isfinite(v); });
}

/// Returns the upper triangular U with UᵀU = H⁻¹, row by row, for rows and columns of H in a given
/// order. The result is empty if H is not positive definite. H = R Rᵀ with upper triangular R is
/// the Cholesky factorization of rows and columns in reverse order, and U = R⁻¹.
Numbers inverse_upper(Products products, const Symmetric& h, std::span<const std::int32_t> order,
                      const InvertLower& library = {}) {
  const auto size = static_cast<std::int64_t>(order.size());
  const auto reversed = [&](std::int64_t i) {
    return order[static_cast<std::size_t>(size - 1 - i)];
  };
  Numbers work(order.size() * order.size());
  for (std::int64_t i = 0; i < size; ++i)  // only the lower triangle is read
    for (std::int64_t j = 0; j <= i; ++j) work.data()[i * size + j] = h(reversed(i), reversed(j));
  if (!(library ? invert_by(library, size, work) : InverseLower(products, size, work)()))
    return Numbers(0);
  std::ranges::reverse(work);
  return work;
}

/// Copies the upper triangle to the lower one, in tiles whose lines fit the L1 cache.
void mirror(std::vector<float>& h, std::size_t size) {
  constexpr std::size_t kTile = 32;
  for (std::size_t i = 0; i < size; i += kTile)
    for (std::size_t j = i; j < size; j += kTile)
      for (std::size_t r = i; r < std::min(i + kTile, size); ++r)
        for (std::size_t c = std::max(j, r + 1); c < std::min(j + kTile, size); ++c)
          h[c * size + r] = h[r * size + c];
}

/// Returns a whole symmetric matrix from its upper triangle.
std::vector<float> whole(const std::vector<double>& triangle, std::size_t size) {
  std::vector<float> h(size * size);
  const double* at = triangle.data();
  for (std::size_t i = 0; i < size; ++i)
    for (std::size_t j = i; j < size; ++j) h[i * size + j] = static_cast<float>(*at++);
  mirror(h, size);
  return h;
}

void factor_blocks(Products products, const Symmetric& h, GramFactor& factor) {
  const std::int64_t blocks = factor.depth / kBlock;
  constexpr std::size_t kSize = kBlock * kBlock;
  std::vector<std::int32_t> order(kBlock);
  for (std::int64_t b = 0; b < blocks; ++b) {
    std::iota(order.begin(), order.end(), static_cast<std::int32_t>(b * kBlock));
    Numbers upper = inverse_upper(products, h, order);
    const Eigen::Map<const Eigen::Matrix<double, kBlock, kBlock, Eigen::RowMajor>> u(upper.data());
    const Eigen::Matrix<double, kBlock, kBlock> inverse = u.transpose() * u;
    for (std::size_t i = 0; i < kSize; ++i) {
      factor.block_inverse.push_back(static_cast<float>(inverse.data()[i]));
      factor.block_upper.push_back(static_cast<float>(upper.data()[i]));
    }
    for (int i = 0; i < kBlock; ++i)
      factor.block_reciprocal.push_back(static_cast<float>(1 / u(i, i)));
  }
}

}  // namespace

GramFactor factor_gram(std::int64_t depth, std::vector<double> triangle, double damping,
                       std::string_view backend, const InvertLower& library) {
  const Products products = find_backend(backend).subtract_product;
  GramFactor factor;
  factor.depth = depth;
  const auto size = static_cast<std::size_t>(depth);
  factor.order.resize(size);
  std::iota(factor.order.begin(), factor.order.end(), 0);
  Symmetric h(depth, std::move(triangle));
  double trace = 0;
  for (const std::int32_t c : factor.order) trace += h.diagonal(c);
  factor.mean = trace / static_cast<double>(depth);
  require<ValueError>(factor.mean > 0, "a Gram matrix whose diagonal is zero");
  for (double& v : h.triangle()) v /= factor.mean;
  for (const std::int32_t c : factor.order)
    factor.weights.push_back(static_cast<float>(h.diagonal(c)));
  std::ranges::stable_sort(factor.order, std::greater(),
                           [&](std::int32_t c) { return h.diagonal(c); });

  Numbers upper(0);
  double added = 0;
  for (double step = damping; upper.empty(); step *= 10) {
    require<ValueError>(step <= 1, "a Gram matrix that is not positive definite");
    for (const std::int32_t c : factor.order) h.diagonal(c) += step - added;
    added = step;
    upper = inverse_upper(products, h, factor.order, library);
  }
  factor.by = library ? GramFactor::By::library : GramFactor::By::eigen;
  factor.damping = static_cast<float>(added);
  for (std::size_t p = 0; p < size; ++p)
    factor.reciprocal.push_back(static_cast<float>(1 / upper.data()[p * (size + 1)]));
  factor.upper = upper.to_floats();
  factor_blocks(products, h, factor);
  factor.gram = whole(h.triangle(), size);
  return factor;
}

}  // namespace nvfp4
