#pragma once

#include <span>

#include "nvfp4/quantize.h"

namespace nvfp4 {

/// Chooses between two global scales for mse: amax / (6 · 256), which quantize() measures, and
/// amax / (6 · 448), ModelOpt's. Returns the one with the smaller Σ (x − x̂)², the first on a tie.
/// It is one for all matrices of `group`, such as those that loaders fuse. Quantizes each twice,
/// one at a time, into memory of its own, and waits for a GPU. Throws ValueError unless `options`
/// have mse (the default), one global scale for the tensor, no weights and no hessian; ShapeError,
/// UnsupportedError, DeviceError.
GlobalScale choose_global_scale(std::span<const MatrixView> group,
                                const QuantizeOptions& options = {});

}  // namespace nvfp4
