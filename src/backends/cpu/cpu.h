#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/backend.h"

namespace nvfp4::cpu {

/// A row of the list in targets.cc: the kernels of a target of Highway, and those of instructions
/// that Highway does not know.
struct Target {
  std::int64_t highway;  ///< HWY_AVX2
  const char *name, *needs;
  /// Its own kernels, over those of the target. False: this CPU lacks what they need.
  bool (*fill)(Backend& backend) = nullptr;
};
std::span<const Target> targets();

/// One for each name of the list; before them "cpu", the best that this machine has.
const std::vector<BackendEntry>& backends();

/// A target of another name, for as long as the object lives. For tests: nothing else runs when it
/// comes and goes.
class AddedTarget {
 public:
  explicit AddedTarget(const Target& target);
  ~AddedTarget();
  AddedTarget(const AddedTarget&) = delete;
  AddedTarget& operator=(const AddedTarget&) = delete;
};

}  // namespace nvfp4::cpu
