#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/families/model_config.h"
#include "checkpoint/plan/plan.h"
#include "core/printable.h"

namespace nvfp4::checkpoint {

/// Opens the statistics of a run; null if none are given. Throws ValueError if the method needs
/// statistics that are not given. Also throws IoError, FormatError and UnsupportedError.
std::shared_ptr<const Statistics> statistics_of_run(const TransformOptions& options,
                                                    const ModelConfig& config);

/// Returns the statistics of a matrix's inputs. Null: `statistics` is null, does not have the
/// module, or saw no token there. Throws ValueError for statistics of another model.
const InputStatistics* statistics_of(const Statistics* statistics, const WeightSlice& slice);

/// Adds warnings of missing statistics to the plan. Throws ValueError if no weight has any.
void warn_of_missing_statistics(Plan& plan);

/// The modules that a warning is about: their number, and the first of them.
struct Listed {
  std::size_t count = 0;
  std::string first;

  void add(std::string_view module, std::size_t modules = 1) {
    if (count == 0) first = module;
    count += modules;
  }
  std::string text() const { return printable(first) + (count > 1 ? ", ..." : ""); }
};

}  // namespace nvfp4::checkpoint
