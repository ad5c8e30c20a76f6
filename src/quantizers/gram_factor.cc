#include "quantizers/gram_factor.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <numeric>

#include "core/require.h"
#include "nvfp4/format.h"

namespace nvfp4 {
namespace {

using Doubles = Eigen::MatrixXd;
using RowMajorFloats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr Eigen::Index kStrip = 64;

/// Upper triangular U with UᵀU = H⁻¹; empty if H is not positive definite. H = R Rᵀ with R upper
/// triangular is the Cholesky factorization of the rows and columns in reverse order, and U = R⁻¹.
Doubles inverse_upper(const Doubles& h) {
  const Eigen::LLT<Doubles, Eigen::Lower> reversed(h.reverse());
  if (reversed.info() != Eigen::Success) return {};
  Doubles inverse = Doubles::Identity(h.rows(), h.cols());
  // A strip of columns at a time, from its first row that is not zero on: a third of the work.
  for (Eigen::Index c = 0; c < h.cols(); c += kStrip) {
    const Eigen::Index rest = h.cols() - c;
    auto strip = inverse.block(c, c, rest, std::min(kStrip, rest));
    reversed.matrixLLT()
        .bottomRightCorner(rest, rest)
        .triangularView<Eigen::Lower>()
        .solveInPlace(strip);
  }
  const Doubles upper = inverse.reverse();
  return upper.allFinite() ? upper : Doubles();
}

void store(const Doubles& from, float* to) {
  Eigen::Map<RowMajorFloats>(to, from.rows(), from.cols()) = from.cast<float>();
}

/// Of H in the factor's order.
Doubles ordered_upper(const Doubles& h, const std::vector<std::int32_t>& order) {
  const auto k = static_cast<Eigen::Index>(order.size());
  Doubles permuted(k, k);
  for (Eigen::Index j = 0; j < k; ++j)
    for (Eigen::Index i = 0; i < k; ++i)
      permuted(i, j) = h(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(j)]);
  return inverse_upper(permuted);
}

void factor_blocks(const Doubles& h, GramFactor& factor) {
  const std::int64_t blocks = factor.depth / kBlock, size = kBlock * kBlock;
  factor.block_inverse.resize(static_cast<std::size_t>(blocks * size));
  factor.block_upper.resize(static_cast<std::size_t>(blocks * size));
  for (std::int64_t b = 0; b < blocks; ++b) {
    const Doubles upper = inverse_upper(h.block(b * kBlock, b * kBlock, kBlock, kBlock));
    store(upper.transpose() * upper, factor.block_inverse.data() + b * size);
    store(upper, factor.block_upper.data() + b * size);
    for (int i = 0; i < kBlock; ++i)
      factor.block_reciprocal.push_back(static_cast<float>(1 / upper(i, i)));
  }
}

}  // namespace

GramFactor factor_gram(std::int64_t depth, std::span<const double> triangle, double damping) {
  GramFactor factor;
  factor.depth = depth;
  Doubles h(depth, depth);
  std::size_t at = 0;
  for (Eigen::Index i = 0; i < depth; ++i)
    for (Eigen::Index j = i; j < depth; ++j) h(i, j) = h(j, i) = triangle[at++];
  const double mean = h.diagonal().mean();
  require<ValueError>(mean > 0, "a Gram matrix whose diagonal is zero");
  h /= mean;
  for (Eigen::Index i = 0; i < depth; ++i) factor.weights.push_back(static_cast<float>(h(i, i)));

  factor.order.resize(static_cast<std::size_t>(depth));
  std::iota(factor.order.begin(), factor.order.end(), 0);
  std::ranges::stable_sort(factor.order, std::greater(), [&](std::int32_t c) { return h(c, c); });

  Doubles upper;
  double added = 0;
  for (double step = damping; upper.size() == 0; step *= 10) {
    require<ValueError>(step <= 1, "a Gram matrix that is not positive definite");
    h.diagonal().array() += step - added;
    added = step;
    upper = ordered_upper(h, factor.order);
  }
  factor.damping = static_cast<float>(added);
  const auto size = static_cast<std::size_t>(depth * depth);
  factor.upper.resize(size);
  store(upper, factor.upper.data());
  for (Eigen::Index p = 0; p < depth; ++p)
    factor.reciprocal.push_back(static_cast<float>(1 / upper(p, p)));
  upper.resize(0, 0);
  factor_blocks(h, factor);
  factor.gram.resize(size);
  store(h, factor.gram.data());
  return factor;
}

}  // namespace nvfp4
