#pragma once

#include <cstddef>
#include <vector>

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Asks a ShardSupply for the files that a plan reads, and gives them back: each is there from the
/// first tensor that reads it, a partner's scale included, to the last.
class Arrivals {
 public:
  /// Tensors of shards whose `done` is true are not read. The arguments must outlive it.
  Arrivals(const Plan& plan, const std::vector<bool>& done, ShardSupply& supply);
  /// Tensor `t` of the plan is read next. Ascending.
  void before(std::size_t t);
  /// Whether a file is not needed once the tensors before `end` have been read.
  bool leaves(std::size_t end) const;
  /// They have been read.
  void leave(std::size_t end);

 private:
  struct Use {
    std::size_t tensor;
    const TensorFile* file;
  };

  ShardSupply& supply_;
  std::vector<Use> first_, last_;  // of each file, by tensor
  std::size_t arrived_ = 0, left_ = 0;
};

}  // namespace nvfp4::checkpoint
