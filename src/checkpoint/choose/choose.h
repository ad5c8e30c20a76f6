#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

struct ChosenLayers {
  std::shared_ptr<const Recipe> recipe;
  std::vector<BudgetPoint> curve;
  std::string error_of;               ///< as QuantizeReport says
  std::vector<std::string> warnings;  ///< what keeps the choice from being the best one
};

/// Quantizes the model twice without writing it, to NVFP4 and to FP8, and says which layers become
/// what so that the summed output error is least within options.bits or options.size. Layers that
/// loaders build as one become one kind. The error of a weight is its squared error, with
/// statistics that of its output. Where these have the sensitivity of all weights, it is the change
/// of the last hidden state. Throws ValueError that names the least for a budget that cannot be
/// met.
ChosenLayers choose_recipe(const ModelFolder& model, const TransformOptions& options);

}  // namespace nvfp4::checkpoint
