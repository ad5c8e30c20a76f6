#include "backends/cpu/cpu.h"
namespace nvfp4::cpu {
const std::vector<Target>& targets() {
  static const std::vector<Target> t;
  return t;
}
}  // namespace nvfp4::cpu
