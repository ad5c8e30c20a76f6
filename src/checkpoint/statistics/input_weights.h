#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "checkpoint/statistics/statistics.h"

namespace nvfp4::checkpoint {

/// What errors of a weight count by, for each input channel, whatever form the weight gets: sums of
/// squares that calibration saw. Thread-safe.
class InputWeights {
 public:
  /// `completes`: experts that saw few tokens are quantized by a Gram matrix that their layer
  /// completes. The sums are then those of its diagonal, in proportion to the expert's own tokens.
  InputWeights(const Statistics& statistics, bool completes)
      : statistics_(statistics), completes_(completes) {}

  std::vector<double> of(const InputStatistics& input);
  /// Own tokens, among those of the matrix by which the weight is quantized.
  double share(const InputStatistics& input) const;

 private:
  double tokens_of_layer(const InputStatistics& input) const;
  const std::vector<double>& of_layer(const InputStatistics& expert);

  const Statistics& statistics_;
  bool completes_;
  std::mutex mutex_;                                   // of what follows
  std::map<std::size_t, std::vector<double>> layers_;  // of a token; by InputStatistics::experts
};

}  // namespace nvfp4::checkpoint
