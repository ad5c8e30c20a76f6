#pragma once

#include <cstdint>
#include <vector>

namespace nvfp4 {

/// The factors of the Gram matrix H = XᵀX of a layer's inputs. H is divided by the mean of its
/// diagonal, and `damping` is added to the diagonal.
struct GramFactor {
  std::int64_t depth = 0;           ///< K
  double mean = 1;                  ///< mean of H's diagonal
  float damping = 0;                ///< added to the diagonal of `gram`
  std::vector<float> weights;       ///< [K]: the diagonal of H without damping
  std::vector<float> gram;          ///< [K, K], both triangles
  std::vector<std::int32_t> order;  ///< [K]: the columns by falling diagonal
  std::vector<float> upper;         ///< [K, K]: U with UᵀU = inverse of H in `order`; zeros below
  std::vector<float> reciprocal;    ///< [K]: 1 / U_pp
  /// The same for each block of 16 columns alone, in their own order: [K / 16, 16, 16].
  std::vector<float> block_inverse, block_upper;
  std::vector<float> block_reciprocal;  ///< [K]
  /// The library that computed `upper`: Eigen on the CPU, or a library of the device.
  enum class By : std::uint8_t { nobody, eigen, library };
  By by = By::nobody;
};

}  // namespace nvfp4
