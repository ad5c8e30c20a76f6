#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "quantizers/gram_factor.h"

namespace nvfp4 {

/// As DeviceSolver::invert_lower(), of a device; empty: Eigen.
using InvertLower = std::function<bool(double* h, std::int64_t n)>;

/// `triangle`: the upper triangle of H, row by row, finite, its diagonal not negative and somewhere
/// positive; K % 16 == 0. One thread, FP64. Where H is not positive definite by its rounding,
/// `damping` is multiplied by 10 until it is, up to 1. The same bits on every backend whose machine
/// has fused multiply-add, but not with `library`. Takes 12 K² bytes at most, those of `triangle`
/// (4 K²) and of the result (8 K²) among them. Throws ValueError if it never is, UnsupportedError,
/// and what `library` does.
GramFactor factor_gram(std::int64_t depth, std::vector<double> triangle, double damping,
                       std::string_view backend = {}, const InvertLower& library = {});

}  // namespace nvfp4
