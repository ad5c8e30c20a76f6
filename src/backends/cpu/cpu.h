#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/backend.h"

namespace nvfp4::cpu {

/// An entry of the list in targets.cc: a Highway target, and kernels with instructions that Highway
/// does not know.
struct Target {
  std::int64_t highway;  ///< such as HWY_AVX2
  const char *name, *needs;
  /// Replaces kernels of the target. Returns false if this CPU lacks the instructions.
  bool (*fill)(Backend& backend) = nullptr;
};
std::span<const Target> targets();

/// Returns an entry for each name of the list. The first one is "cpu", the best of this machine.
const std::vector<BackendEntry>& backends();

/// Adds a target of another name during its lifetime. For tests: no other thread may use the list
/// when it is added or removed.
class AddedTarget {
 public:
  explicit AddedTarget(const Target& target);
  ~AddedTarget();
  AddedTarget(const AddedTarget&) = delete;
  AddedTarget& operator=(const AddedTarget&) = delete;
};

}  // namespace nvfp4::cpu
