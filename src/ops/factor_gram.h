#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "quantizers/gram_factor.h"

namespace nvfp4 {

/// DeviceSolver::invert_lower() of a device. If empty, Eigen is used.
using InvertLower = std::function<bool(double* h, std::int64_t n)>;

/// Returns the factors of a Gram matrix H [K, K], K % 16 == 0. `triangle` is the upper triangle of
/// H, row by row. It is finite, and its diagonal is not negative and somewhere positive. One thread
/// computes in FP64. If rounding makes H not positive definite, `damping` is multiplied by 10 until
/// it is, up to 1. The bits are the same on every backend whose machine has fused multiply-add,
/// except with `library`. The memory is at most 12 K² bytes: 4 K² for `triangle` and 8 K² for the
/// result. Throws ValueError if H is never positive definite, UnsupportedError, and the errors of
/// `library`.
GramFactor factor_gram(std::int64_t depth, std::vector<double> triangle, double damping,
                       std::string_view backend = {}, const InvertLower& library = {});

}  // namespace nvfp4
