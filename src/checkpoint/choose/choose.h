#pragma once

#include <memory>
#include <vector>

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Quantizes the model twice without writing it, to NVFP4 and to FP8, and says which layers become
/// what so that the summed output error is least within options.bits or options.size. Layers that
/// loaders build as one become one kind. The error of a weight is its squared error, with
/// statistics times the sum of squares of an input channel. Throws ValueError that names the least
/// for a budget that cannot be met.
std::shared_ptr<const Recipe> choose_recipe(const ModelFolder& model,
                                            const TransformOptions& options,
                                            std::vector<BudgetPoint>& curve);

}  // namespace nvfp4::checkpoint
