#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
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

struct Alternative {
  std::uint64_t bytes = 0;
  double error = 0;
  std::uint64_t slow = 0;  ///< multiplications that are not W4A4, in any unit
};
/// The formats that a layer can get, in any order; at least one.
using Alternatives = std::vector<Alternative>;

struct Allocation {
  std::vector<std::size_t> chosen;  ///< chosen alternative of each layer
  std::uint64_t bytes = 0;
  double error = 0;
  std::uint64_t slow = 0;
  double bound = 0;    ///< lower bound of the error of any choice within the budget
  bool exact = false;  ///< true if `error` is the minimum
};

/// Returns the smallest possible sum of bytes.
std::uint64_t least_bytes(std::span<const Alternatives> layers);

/// The budgets of all layers together.
struct Budget {
  std::uint64_t bytes = 0;
  std::uint64_t slow = std::numeric_limits<std::uint64_t>::max();
};

/// Takes steps on the lower convex hulls of all layers while they fit. Steps with the largest gain
/// per byte come first; with equal gains the first layer does, so the result is the same
/// everywhere. The error exceeds the bound by less than the gain of one step. With a budget of slow
/// multiplications each of them costs the least price at which the result is within the budget.
/// Requires budget.bytes >= least_bytes(), and that each layer's smallest alternatives include one
/// without slow multiplications if these have a budget.
Allocation allocate(std::span<const Alternatives> layers, Budget budget);

/// The number of partial choices that allocate_exactly() may examine; they take about two seconds.
inline constexpr std::size_t kMostNodes = 8'000'000;

/// Returns the allocation with the least error, by branch and bound from that of allocate(). After
/// `nodes` partial choices it returns the best one so far, with exact = false.
Allocation allocate_exactly(std::span<const Alternatives> layers, Budget budget,
                            std::size_t nodes = kMostNodes);

}  // namespace nvfp4::checkpoint
