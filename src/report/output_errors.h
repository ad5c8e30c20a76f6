#pragma once

#include "checkpoint/compare/tensor_pairs.h"
#include "checkpoint/statistics/statistics.h"
#include "report/layers.h"

/// Errors of layer outputs over a calibration text, for any checkpoint of the model.
namespace nvfp4::report {

/// Returns ‖X (a − b)ᵀ‖² and ‖X aᵀ‖² of each weight that the statistics have, by its name. XᵀX is
/// the Gram matrix, or its diagonal if the file has no more. With a large matrix the sums are over
/// evenly spaced rows of the weight, at least 32. Throws IoError, FormatError.
TensorErrors output_errors(const checkpoint::CheckpointReader& a,
                           const checkpoint::CheckpointReader& b,
                           const checkpoint::Statistics& statistics);

}  // namespace nvfp4::report
