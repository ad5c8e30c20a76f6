#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "checkpoint/statistics/statistics.h"

namespace nvfp4::checkpoint {

/// The weight of errors in each input channel, for every format of the layer: the sums of squares
/// of calibration. Thread-safe.
class InputWeights {
 public:
  /// `completes`: experts that saw few tokens are quantized with a Gram matrix that includes their
  /// layer's mean. The sums are then those of its diagonal, scaled to the expert's own tokens.
  InputWeights(const Statistics& statistics, bool completes)
      : statistics_(statistics), completes_(completes) {}

  std::vector<double> of(const InputStatistics& input);
  /// Returns the share of the input's own tokens in the Gram matrix of its weight.
  double share(const InputStatistics& input) const;

 private:
  double tokens_of_layer(const InputStatistics& input) const;
  const std::vector<double>& of_layer(const InputStatistics& expert);

  const Statistics& statistics_;
  bool completes_;
  std::mutex mutex_;  // guards `layers_`
  // Means of a token, keyed by InputStatistics::experts.
  std::map<std::size_t, std::vector<double>> layers_;
};

}  // namespace nvfp4::checkpoint
