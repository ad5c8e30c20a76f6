#pragma once

#include <string>
#include <vector>

#include "checkpoint/source/cache.h"
#include "checkpoint/source/quantized_tensors.h"
#include "checkpoint/verify/checks.h"

namespace nvfp4::checkpoint {

/// Tensors of the source that a checkpoint may lack. They are computed buffers, copies of other
/// weights (tied), and cache scales that the checkpoint does not declare.
class DerivedTensors {
 public:
  DerivedTensors(const CheckpointReader& source, const CheckpointReader& made,
                 const Subject& subject);

  bool contains(const std::string& name) const;

 private:
  bool is_tied(const LogicalTensor& t) const;

  const CheckpointReader& source_;
  bool may_be_tied_ = true;
  CacheScales undeclared_;
  std::vector<const LogicalTensor*> tables_;  ///< vocabulary tables of the source that are in both
};

}  // namespace nvfp4::checkpoint
