#include "backends/cuda/gemm/architecture.h"

namespace nvfp4::cuda {

extern const Architecture kSm80, kSm90, kSm100, kSm120, kSm120Twin;

std::span<const Architecture* const> architectures() {
  static constexpr const Architecture* kAll[] = {&kSm90, &kSm100, &kSm120, &kSm80, &kSm120Twin};
  return kAll;
}

}  // namespace nvfp4::cuda
