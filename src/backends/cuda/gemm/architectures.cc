#include "backends/cuda/gemm/architecture.h"

namespace nvfp4::cuda {

extern const Architecture kSm90;

std::span<const Architecture* const> architectures() {
  static constexpr const Architecture* kAll[] = {&kSm90};
  return kAll;
}

}  // namespace nvfp4::cuda
