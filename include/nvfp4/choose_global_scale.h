#pragma once

#include <span>

#include "nvfp4/quantize.h"

namespace nvfp4 {

/// For mse: of amax / (6 · 256), which is measured if no global scale is given, and amax / (6 ·
/// 448), ModelOpt's, the one that loses less, Σ (x − x̂)²; the former on a tie. One for all matrices
/// of `group`, such as those that loaders fuse. Quantizes each twice, into memory of its own, one
/// at a time, and on a GPU waits for it. Throws ValueError unless `options` say mse, one global
/// scale for the tensor, no weights and no hessian; ShapeError, UnsupportedError, DeviceError.
GlobalScale choose_global_scale(std::span<const MatrixView> group,
                                const QuantizeOptions& options = {.quantizer = Quantizer::mse});

}  // namespace nvfp4
