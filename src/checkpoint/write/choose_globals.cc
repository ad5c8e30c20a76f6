#include "checkpoint/write/choose_globals.h"

#include <map>

#include "core/parallel_for.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the squared error of each group of the window, summed in the order of its tasks.
std::map<std::size_t, double> squared_errors(const Plan& plan, Encoder& encoder,
                                             const Window& window,
                                             std::span<const GlobalScale> globals) {
  const std::vector<Batch> batches = encoder.batches(window);
  std::vector<double> errors(window.encode.size());
  parallel_for(static_cast<std::int64_t>(batches.size()), [&](std::int64_t i) {
    encoder.encode(window, batches[static_cast<std::size_t>(i)], globals,
                   [&](std::size_t task, const EncodedChunk& chunk) {
                     errors[task] = chunk.outcome.error.squared_error;
                   });
  });
  std::map<std::size_t, double> of_group;
  for (std::size_t i = 0; i < errors.size(); ++i)
    of_group[plan.units[window.encode[i].unit].group] += errors[i];
  return of_group;
}

}  // namespace

void choose_globals(const Plan& plan, Encoder& encoder, std::span<const GroupAmax> groups,
                    std::vector<GlobalScale>& globals) {
  Window window(0);
  for (const GroupAmax& measured : groups) {
    const Group& group = plan.groups[measured.group];
    if (group.work != Work::quantize || group.moved_global || measured.amax == 0) continue;
    for (const std::size_t unit : group.units) Encoder::add_rows(window, unit, plan.units[unit]);
  }
  if (window.encode.empty()) return;
  const std::map<std::size_t, double> first = squared_errors(plan, encoder, window, globals);
  std::vector<GlobalScale> others = globals;
  for (const GroupAmax& measured : groups)
    others[measured.group] = GlobalScale::from_amax(measured.amax, Quantizer::max);
  for (const auto& [group, error] : squared_errors(plan, encoder, window, others))
    if (error < first.at(group)) globals[group] = others[group];
}

}  // namespace nvfp4::checkpoint
