#pragma once

#include <vector>

#include "checkpoint/encode/device_gptq.h"
#include "checkpoint/encode/window.h"

namespace nvfp4::checkpoint {

/// Chunks of a window that one thread brings through a device: Window::encode [first, last).
struct Batch {
  std::size_t first, last;
  bool by_gram;  ///< of one unit, all at once; see DeviceGptq
};

/// `in_a_row`: at most, of the others. `by_gram(task)`: whether a task is for DeviceGptq.
template <class F>
std::vector<Batch> batches_of(const Window& window, const Plan& plan, std::size_t in_a_row,
                              F&& by_gram) {
  std::vector<Batch> batches;
  for (std::size_t i = 0; i < window.encode.size(); ++i) {
    const EncodeTask& task = window.encode[i];
    const bool gram = by_gram(task);
    if (!batches.empty() && batches.back().by_gram == gram) {
      Batch& batch = batches.back();
      const EncodeTask& first = window.encode[batch.first];
      const bool joins = gram ? first.unit == task.unit &&
                                    task.row + task.rows - first.row <=
                                        DeviceGptq::most_rows(plan.units[task.unit].slice.cols)
                              : i - batch.first < in_a_row;
      if (joins) {
        batch.last = i + 1;
        continue;
      }
    }
    batches.push_back({i, i + 1, gram});
  }
  return batches;
}

}  // namespace nvfp4::checkpoint
