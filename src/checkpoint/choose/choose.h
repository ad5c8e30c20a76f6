#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

struct ChosenLayers {
  std::shared_ptr<const Recipe> recipe;
  std::vector<BudgetPoint> curve;
  std::string error_of;               ///< the value of QuantizeReport::error_of
  std::vector<std::string> warnings;  ///< reasons why the choice may not be the best
};

/// Quantizes the model to NVFP4 and to FP8 without writing it. Chooses the formats of layers with
/// the least summed output error within options.bits or options.size. Layers that loaders fuse get
/// one format. The error of a weight is its squared error; with statistics it is that of its
/// output. If the statistics have the sensitivity of all weights, it is the change of the last
/// hidden state. Throws ValueError with the smallest possible budget if the budget is too small.
ChosenLayers choose_recipe(const ModelFolder& model, const TransformOptions& options);

}  // namespace nvfp4::checkpoint
