#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

struct ChosenLayers {
  std::shared_ptr<const Recipe> recipe;
  std::vector<BudgetPoint> curve;
  std::string curve_over;             ///< the value of QuantizeReport::curve_over
  std::string error_of;               ///< the value of QuantizeReport::error_of
  std::vector<std::string> warnings;  ///< reasons why the choice may not be the best
};

/// Chooses the formats of layers with the least summed error within options.bits or options.size
/// and options.w4a4. Layers that loaders fuse get one format. For the first two it quantizes the
/// model to NVFP4 and to FP8 without writing it. The error of a weight is its squared error; with
/// statistics it is that of its output. If the statistics have the sensitivity of all weights, it
/// is the change of the last hidden state. With options.w4a4 the input sensitivities of W4A4 layers
/// are added. Throws ValueError with the smallest possible budget if the budget is too small, or
/// if the statistics lack the sensitivities that options.w4a4 needs.
ChosenLayers choose_recipe(const ModelFolder& model, const TransformOptions& options);

}  // namespace nvfp4::checkpoint
